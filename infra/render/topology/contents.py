"""What is in places: node pools, machines, storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.model import Cluster
from infra.render.topology import wording
from infra.render.topology.items import CLIENTS, Item, door_id, facts, machines, server_facts, servers

_ROLES: Final = {"control-plane": "master", "ssh-node": "SSH node", "access-gateway": "VPN end point"}


def tell(cluster: Cluster) -> Iterator[Item]:
    """Node pools by region, machines, file systems, buckets and exports."""
    yield from _pools(cluster)
    yield from _machines(cluster)
    yield from _storage(cluster)


def _pools(cluster: Cluster) -> Iterator[Item]:
    for pool in cluster.pools:
        market, names = wording.market(pool.market), wording.types(pool)
        bought = wording.short_market(pool.market)
        taints = ", ".join(taint.text for taint in pool.taints)
        disks = ", ".join(f"{disk.size_gib} GiB {disk.type}" for disk in pool.scratch_disks)
        everywhere = tuple(f"{group.site}/{pool.name}" for group in pool.groups)
        for group in pool.groups:
            yield Item(
                f"{group.site}/{pool.name}",
                "node pool",
                pool.name,
                f"{names.split(',')[0]} in {group.site}",
                facts(
                    ("Types", names),
                    ("GPUs", wording.card(pool.gpus) if pool.gpus else None),
                    ("Market", market),
                    ("Nodes", wording.span(group.min, group.max)),
                    ("Price", wording.hourly(wording.price(pool, group), bought)),
                    ("At full size", wording.hourly(wording.full_price(pool, group), bought)),
                    ("Zones", ", ".join(group.zones)),
                    ("Image", f"{pool.image}, {pool.architecture}"),
                    ("Priority", pool.priority or None),
                    ("Scratch", disks),
                    ("Placement", pool.placement_group if pool.placement_group != "none" else None),
                    ("EFA", wording.count(pool.efa_interfaces, "interface") if pool.efa_interfaces else None),
                    ("Reserved", group.capacity_reservation.id if group.capacity_reservation else None),
                    ("Taints", taints),
                    ("Launch", "launch configuration" if pool.launch == "configuration" else None),
                    ("Group", group.name),
                ),
                parent=group.site,
                related=tuple(other for other in everywhere if other != f"{group.site}/{pool.name}"),
            )


def _machines(cluster: Cluster) -> Iterator[Item]:
    plane, known = cluster.control_plane, servers(cluster)
    for machine in machines(cluster):
        server = known.get((machine.site, machine.hostname))
        yield Item(
            f"{machine.site}/machines/{machine.hostname}",
            _ROLES[machine.role],
            machine.hostname,
            machine.fqdn,
            facts(
                ("Name", machine.fqdn),
                ("Type", machine.instance_type),
                ("Zone", machine.zone),
                ("Subnet", machine.subnet),
                ("Image", machine.image),
                ("Address", "public, elastic" if machine.public else "private"),
                ("SSH from", ", ".join(map(str, machine.ssh_from))),
                ("Behind", f"{plane.endpoint}:{plane.port}" if plane and machine in plane.masters else None),
                ("Price", wording.hourly(machine.hourly_price)),
                ("Instance", machine.name),
                *(server_facts(server) if server else ()),
            ),
            parent=machine.site,
            related=(
                f"{machine.site}/subnets/{machine.subnet}",
                *((CLIENTS, door_id(machine.site)) if server else ()),
            ),
        )


def _storage(cluster: Cluster) -> Iterator[Item]:
    for system in cluster.storage.efs:
        yield Item(
            f"{system.site}/efs/{system.name}",
            "EFS",
            system.name,
            system.path,
            facts(
                ("Path", system.path),
                ("Throughput", system.throughput),
                ("Performance", system.performance),
                ("Access points", ", ".join(f"{each.name} ({each.path})" for each in system.access_points)),
                ("Archived", _after(system.archive_after_days)),
                ("Backup", "daily" if system.backup else "none"),
                ("Name", system.aws_name),
            ),
            parent=system.site,
            related=tuple(f"{system.site}/subnets/{subnet}" for subnet in system.subnets),
        )
    for bucket in cluster.storage.s3:
        yield Item(
            f"{bucket.site}/s3/{bucket.name}",
            "S3 bucket",
            bucket.name,
            bucket.bucket,
            facts(
                ("Bucket", bucket.bucket),
                ("Path", bucket.path),
                ("Access", "read only" if bucket.read_only else "read and write"),
                ("Old versions", wording.count(bucket.versions_days, "day")),
                ("Archived", _after(bucket.archive_days)),
                ("Expires", _after(bucket.expire.get(""))),
            ),
            parent=bucket.site,
        )
    for export in cluster.storage.nfs:
        host = export.server.removesuffix(f".{cluster.domain}")
        yield Item(
            f"{export.site}/nfs/{export.name}",
            "NFS export",
            export.name,
            export.path,
            facts(
                ("Path", export.path),
                ("Server", export.server),
                ("Export", export.export),
                ("Access", "read only" if export.read_only else "read and write"),
            ),
            parent=export.site,
            related=(f"{export.site}/nodes/{host}",),
        )


def _after(days: int | None) -> str | None:
    return f"after {wording.count(days, 'day')}" if days else None
