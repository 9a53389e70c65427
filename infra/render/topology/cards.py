"""Places in full: a card with its zones, pools, machines and storage, or with its racks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from infra.model import Cluster
from infra.model.machines import Instance, NodeGroup, NodePool
from infra.model.places import PhysicalSite, Region
from infra.render.topology import wording
from infra.render.topology.items import machines
from infra.render.topology.marks import Pen
from infra.render.topology.sections import Card, Cell, Draw, Writer

_TAGS: Final = {"control-plane": "MASTER", "access-gateway": "VPN", "ssh-node": "SSH"}


def region_drawing(
    pen: Pen, cluster: Cluster, region: Region, groups: Sequence[tuple[NodePool, NodeGroup]]
) -> Draw:
    """A region in full."""
    facts = [pen.items[region.name].note]
    names = [each.name for each in region.endpoints]
    facts += [f"{wording.services(names)} endpoint{'s' if len(names) > 1 else ''}"] if names else []
    facts += ["flow logs"] if region.flow_logs else []

    def draw(x: int, y: int, w: int) -> Card:
        writer = Writer(pen, x, y, w)
        writer.head(region.name, str(region.vpc), " · ".join(facts), f"AS {region.asn}", region.order)
        writer.zones(region)
        writer.pools(region, groups)
        writer.cells("Machines", "machine", list(_machine_cells(region, machines(cluster))), 2)
        writer.cells("Storage", "storage", list(_storage_cells(cluster, region.name)), 3)
        return writer.done("region", y)

    return draw


def _machine_cells(region: Region, found: Sequence[Instance]) -> Iterator[Cell]:
    for machine in found:
        if machine.site == region.name:
            yield Cell(
                f"{region.name}/machines/{machine.hostname}",
                _TAGS[machine.role],
                machine.hostname,
                f"{machine.instance_type} · {machine.zone.removeprefix(region.region)}",
            )


def _storage_cells(cluster: Cluster, place: str) -> Iterator[Cell]:
    for system in cluster.storage.efs:
        if system.site == place:
            yield Cell(f"{place}/efs/{system.name}", "EFS", system.name, system.path)
    for bucket in cluster.storage.s3:
        if bucket.site == place:
            yield Cell(f"{place}/s3/{bucket.name}", "S3", bucket.name, bucket.path or "")
    for export in cluster.storage.nfs:
        if export.site == place:
            yield Cell(f"{place}/nfs/{export.name}", "NFS", export.name, export.path)


def site_drawing(pen: Pen, cluster: Cluster, site: PhysicalSite) -> Draw:
    """A physical site in full."""
    gateway = site.gateway
    where = [site.location] if site.location else []
    if gateway:
        where.append(f"gateway {', '.join(map(str, gateway.addresses))}")
    tunnels = next((len(each.tunnels) for each in cluster.gateways if each.site == site.name), 0)
    where += [wording.count(tunnels, "tunnel")] if tunnels else []
    system = f"AS {gateway.asn}" if gateway and gateway.routing == "bgp" else ""

    def draw(x: int, y: int, w: int) -> Card:
        writer = Writer(pen, x, y, w)
        writer.head(site.name, str(site.lan), " · ".join(where) or "physical site", system)
        writer.nodes(site)
        writer.cells("Storage", "storage", list(_storage_cells(cluster, site.name)), 3)
        return writer.done("site", y)

    return draw


def laptops_drawing(pen: Pen, cluster: Cluster) -> Draw:
    """Laptops, where they come in, in order, and what each group may reach."""
    vpn = cluster.access.vpn
    people = wording.count(sum(user.vpn for user in cluster.access.users), "user")
    traffic = "all traffic" if vpn.full_tunnel else "the cluster's traffic only"

    def draw(x: int, y: int, w: int) -> Card:
        writer = Writer(pen, x, y, w)
        writer.head("Laptops", str(vpn.clients), f"{wording.kinds(vpn)}, {traffic}", people)
        writer.doors(vpn)
        writer.groups(vpn)
        return writer.done("laptops", y)

    return draw
