"""Terraform: the rendered root module, its values, and the static modules it calls.

The root module contains only wiring: providers, one module call per region, the connections between regions.
All values are in ``terraform.tfvars.json``, so that no HCL quoting is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import permutations
from typing import Any, Final

from msgspec import to_builtins

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs, to_json
from infra.model.ipsec import Ipsec
from infra.model.kubernetes import WebIdentity
from infra.model.machines import Image, Instance, NodeGroup, NodePool
from infra.model.places import Link, Peering, Region
from infra.model.platform import Bucket, FileSystem, Record
from infra.model.research import ManagedDatabase
from infra.render.kubernetes import homes, kubeadm, volumes
from infra.render.templating import fill, static

STATE: Final = "../state/terraform.tfstate"
"""The path of a local state, relative to the root module: state is kept apart from rendered files."""

_HCL: Final = {"\\b": "\\u0008", "\\f": "\\u000c"}

_SERVED: Final = {"s3": "url", "cloudfront": "cloudfront_folder"}
"""Server of an issuer's documents → the variable for it."""

_ROOT: Final = "terraform/root"
_MODULES: Final = "terraform/modules"


def render(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Files:
    """All files of the root module's folder, by path; empty for a cluster without AWS regions."""
    if not cluster.regions:
        return {}
    wiring = _wiring(cluster)
    templates = ("main.tf", "outputs.tf", "providers.tf", "versions.tf")
    root = {name: fill(f"{_ROOT}/{name}.j2", **wiring) for name in templates}
    root["variables.tf"] = static(_ROOT)["variables.tf"]
    root["terraform.tfvars.json"] = to_json(_values(cluster))
    return merge([root, under("modules", static(_MODULES))])


# -- Wiring: what the templates read ----------------------------------------------------------------------


def _wiring(cluster: Cluster) -> dict[str, object]:
    regions = cluster.regions
    state = cluster.state
    s3 = {"bucket": state.bucket, "key": state.key, "region": state.region}
    retired = [{"key": each.key, "region": hcl(each.region)} for each in cluster.retired]
    joined = [_peering(cluster, peering) for peering in cluster.network.peerings]
    mesh = cluster.network.interconnect == "transit-gateway"
    connected = {link.aws_site for link in cluster.network.links} if mesh else set()
    return {
        "title": f"The cluster {cluster.name}, environment {cluster.environment}.".replace("\n", " "),
        "required_version": f">= {state.terraform}",
        "local_backend": {"path": hcl(STATE)} if state.kind == "local" else None,
        "s3_backend": {key: hcl(value) for key, value in s3.items()} if state.kind == "s3" else None,
        "account": hcl(cluster.aws.account) if cluster.aws.account else None,
        "primary": _region(regions[0], regions),
        "regions": [
            {**_region(region, regions), "transit_gateway": region.name in connected} for region in regions
        ],
        "retired": retired,
        "providers": [*({"key": each.key, "region": hcl(each.region)} for each in regions), *retired],
        "secondary": [_region(region, regions[1:]) for region in regions[1:]],
        "renamed": _renamed(cluster),
        "web_identity": cluster.web_identity is not None,
        "tracking_database": _region(cluster.region(cluster.tracking.managed.site), regions)
        if cluster.tracking and cluster.tracking.managed
        else None,
        "balanced": cluster.control_plane is not None,
        "peerings": [] if mesh else joined,
        "transit_gateways": {"regions": [_region(each, regions) for each in regions], "peerings": joined}
        if mesh
        else None,
    }


def _renamed(cluster: Cluster) -> list[dict[str, str]]:
    """The old and new name of each group whose pool was renamed."""
    return [
        {
            "region": cluster.region(group.site).key,
            "old": hcl(pool.renamed_from),
            "new": hcl(pool.name),
        }
        for pool in cluster.pools
        if pool.renamed_from is not None
        for group in pool.groups
    ]


def _region(region: Region, beside: Iterable[Region]) -> dict[str, str]:
    """A region in the root module, with names padded to the width of the other regions', as `terraform fmt`
    aligns columns."""
    beside = tuple(beside)
    return {
        "key": region.key,
        "label": region.key.ljust(max(len(each.key) for each in beside)),
        "site": hcl(region.name),
        "site_label": hcl(region.name).ljust(max(len(hcl(each.name)) for each in beside)),
        "region": hcl(region.region),
    }


def _peering(cluster: Cluster, peering: Peering) -> dict[str, str]:
    return {
        "key": peering.key,
        "name": hcl(f"{cluster.environment}-{peering.name}"),
        "requester": cluster.region(peering.requester).key,
        "accepter": cluster.region(peering.accepter).key,
    }


def hcl(text: str | None) -> str:
    """A string as an HCL literal: quoted as in JSON, with template sequences escaped (HCL syntax, "Template
    Expressions")."""
    quoted = json.dumps(text or "", ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
    # JSON's short escapes that HCL does not have. A backslash in the text itself is already doubled, so it is
    # not affected.
    return re.sub(r"\\.", lambda found: _HCL.get(found[0], found[0]), quoted)


# -- Values -----------------------------------------------------------------------------------------------


def _values(cluster: Cluster) -> dict[str, Any]:
    buckets = {each.name: _rights(each) for each in _of_machines(cluster)}
    kept, audit = cluster.storage.snapshots, cluster.storage.audit
    return {
        "environment": cluster.environment,
        "tags": dict(cluster.tags),
        "identity": {
            "cluster": cluster.name,
            "secrets_prefix": cluster.secrets.prefix,
            "regions": sorted({region.region for region in cluster.regions}),
            "buckets": buckets,
            "snapshots": {"bucket": kept.bucket, "prefix": kubeadm.SNAPSHOTS} if kept else None,
            "audit_log": {"bucket": audit.bucket, "prefix": kubeadm.AUDIT_COPIES} if audit else None,
            "volumes_region": _volumes_region(cluster),
            "kms_keys": sorted({region.kms_key for region in cluster.regions if region.kms_key}),
        },
        "regions": {region.key: _region_values(cluster, region) for region in cluster.regions},
        "dns": _dns(cluster),
        **({"web_identity": _web_identity(cluster, cluster.web_identity)} if cluster.web_identity else {}),
        **(
            {"tracking_database": _tracking_database(cluster, cluster.tracking.managed)}
            if cluster.tracking and cluster.tracking.managed
            else {}
        ),
    }


def _volumes_region(cluster: Cluster) -> str | None:
    """The region in whose file systems the masters provision volumes."""
    sites = {each.site for each in cluster.storage.efs if each.storage_class}
    return next((region.region for region in cluster.regions if region.name in sites), None)


def _of_machines(cluster: Cluster) -> list[Bucket]:
    """Buckets that machines use themselves, without those that only pods use as volumes."""
    copied = {each.bucket for each in cluster.storage.copies}
    return [
        each
        for each in cluster.storage.s3
        if not each.volumes or each.path is not None or each.bucket in copied
    ]


def _rights(bucket: Bucket) -> dict[str, object]:
    return {"bucket": bucket.bucket, "read_only": bucket.read_only}


def _region_values(cluster: Cluster, region: Region) -> dict[str, Any]:
    """The values of one region, in the shape of ``modules/region/variables.tf``."""
    named = [each for each in (*cluster.ssh_nodes, *cluster.access_gateways) if each.site == region.name]
    masters = cluster.control_plane.masters if cluster.control_plane else ()
    here = [each for each in masters if each.site == region.name]
    groups = [(pool, group) for pool in cluster.pools for group in pool.groups if group.site == region.name]
    used = {pool.image for pool, _ in groups} | {each.image for each in (*named, *here)}
    storage = cluster.storage
    values = {
        "name": region.aws_name,
        "kms_key": region.kms_key,
        "network": _network(cluster, region),
        "overlay": _overlay(cluster, region),
        "vpn": _vpn(cluster, region),
        "images": {each.name: _image(each, region) for each in cluster.images if each.name in used},
        "node_pools": {group.pool: _node_pool(pool, group) for pool, group in groups},
        "control_plane": _control_plane(cluster, here),
        "instances": {each.hostname: {**_instance(each), **_doors(each)} for each in named},
        "storage": {
            "file_systems": {
                each.name: _file_system(each) for each in storage.efs if each.site == region.name
            },
            "buckets": {each.name: _bucket(each) for each in storage.buckets if each.site == region.name},
        },
    }
    if cluster.network.interconnect == "transit-gateway":
        values["transit_gateway"] = _transit_gateway(cluster, region)
    return values


def _transit_gateway(cluster: Cluster, region: Region) -> dict[str, Any]:
    network = cluster.network
    transit = network.transit[region.name]
    peers = [
        other
        for peering in network.peerings
        for one, other in permutations((peering.requester, peering.accepter))
        if one == region.name
    ]
    return {
        "asn": region.asn,
        "subnets": [subnet.name for subnet in region.tier("private")],
        # The range that the others route to it: the whole supernet for the hub.
        "block": str(network.supernet if network.hub == region.name else region.vpc),
        "lans": [str(lan) for lan in transit.lans],
        "behind": {cluster.region(peer).key: list(map(str, transit.behind.get(peer, ()))) for peer in peers},
    }


def _network(cluster: Cluster, region: Region) -> dict[str, Any]:
    logs = region.flow_logs
    return {
        "block": str(region.vpc),
        "subnets": {
            each.name: {
                "tier": each.tier,
                "zone": each.zone,
                **({"zone_id": each.zone_id} if each.zone_id else {}),
                "block": str(each.block),
            }
            for each in region.subnets
        },
        "nat": dict(region.nat),
        "gateway_endpoints": _services(region, "gateway"),
        "interface_endpoints": _services(region, "interface"),
        "flow_logs": {"traffic": logs.traffic, "retention_days": logs.retention_days} if logs else None,
        "inside": [str(block) for block in cluster.network.private],
        "overlay_ports": {
            port.name: {"protocol": port.protocol, "from": port.first, "to": port.last}
            for port in cluster.network.overlay_ports
        },
        # Open to the internet only if a service listens.
        "vpn_ports": {
            listener.service: {"protocol": listener.protocol, "port": listener.port}
            for server in cluster.access.vpn.servers
            if server.site == region.name
            for listener in server.listeners
        },
    }


def _services(region: Region, kind: str) -> dict[str, str]:
    return {each.name: each.service for each in region.endpoints if each.kind == kind}


def _overlay(cluster: Cluster, region: Region) -> dict[str, Any] | None:
    router = cluster.kubernetes.overlay.routers.get(region.name)
    if router is None:
        return None
    return {"blocks": sorted(map(str, (cluster.network.pods, cluster.network.services))), "router": router}


def _vpn(cluster: Cluster, region: Region) -> dict[str, Any] | None:
    links = [link for link in cluster.network.links if link.aws_site == region.name]
    if not links:
        return None
    return {
        # AWS's end is the VPC's virtual private gateway, or the transit gateway.
        **({"asn": region.asn} if cluster.network.interconnect == "peering" else {}),
        "customer_gateways": {
            link.customer_gateway: {
                "address": str(link.address),
                "asn": link.site_asn,
                "tags": {"site": link.site, "role": "site-gateway"},
            }
            for link in links
        },
        "connections": {link.name: _connection(link) for link in links},
        **({"alarms": {"emails": list(emails)}} if (emails := cluster.network.alarm_emails) else {}),
        "proposals": _proposals(cluster.network.ipsec),
    }


def _proposals(ipsec: Ipsec) -> dict[str, Any]:
    return {
        "encryption": list(ipsec.encryption),
        "integrity": list(ipsec.integrity),
        "dh_groups": list(ipsec.dh_groups),
        "phase1_lifetime": ipsec.phase1_lifetime,
        "phase2_lifetime": ipsec.phase2_lifetime,
        "rekey_margin": ipsec.rekey_margin,
        "rekey_fuzz_percent": ipsec.rekey_fuzz_percent,
        "dpd_timeout": ipsec.dpd_timeout,
        "replay_window": ipsec.replay_window,
    }


def _connection(link: Link) -> dict[str, Any]:
    return {
        "customer_gateway": link.customer_gateway,
        "static_routes": [str(block) for block in link.site_blocks] if link.routing == "static" else [],
        "startup_action": link.startup_action,
        "tunnels": [{"inside": str(each.inside), "key": each.secret} for each in link.tunnels],
        "tags": dict(link.tags),
    }


def _image(image: Image, region: Region) -> dict[str, Any]:
    return {
        "id": image.ids.get(region.name),
        "owner": image.source.owner,
        "name": image.source.name,
        "architecture": image.architecture,
    }


def _node_pool(pool: NodePool, group: NodeGroup) -> dict[str, Any]:
    """The variable ``pool`` of the module ``node_pool``, with the same field names."""
    return {
        "name": group.name,
        "image": pool.image,
        "subnets": list(group.subnets),
        "min": group.min,
        "max": group.max,
        "launch": pool.launch,
        "capacity_rebalance": pool.capacity_rebalance,
        "instance_types": to_builtins(pool.instance_types),
        "market": to_builtins(pool.market),
        "root_disk": to_builtins(pool.root_disk),
        "scratch_disks": to_builtins(pool.scratch_disks),
        "placement_group": pool.placement_group,
        "efa_interfaces": pool.efa_interfaces,
        "capacity_reservation": to_builtins(group.capacity_reservation),
        "warm_pool": to_builtins(pool.warm_pool),
        "max_lifetime_seconds": pool.max_lifetime_seconds,
        "drain_timeout_seconds": pool.drain_timeout_seconds,
        "tags": dict(group.tags),
        "autoscaler_tags": dict(group.autoscaler_tags),
        "user_data": dict(group.user_data),
    }


def _control_plane(cluster: Cluster, masters: list[Instance]) -> dict[str, Any] | None:
    plane = cluster.control_plane
    if plane is None or not masters:
        return None
    return {
        "load_balancer": plane.load_balancer,
        "port": plane.port,
        "masters": {each.hostname: _instance(each) for each in masters},
    }


def _instance(instance: Instance) -> dict[str, Any]:
    return {
        "name": instance.name,
        "hostname": instance.hostname,
        "fqdn": instance.fqdn,
        "subnet": instance.subnet,
        "instance_type": instance.instance_type,
        "image": instance.image,
        "root_disk": to_builtins(instance.root_disk),
        "tags": dict(instance.tags),
        "user_data": dict(instance.user_data),
    }


def _doors(instance: Instance) -> dict[str, Any]:
    """Fields of an SSH node or VPN server that masters do not have."""
    return {
        "role": instance.role,
        "public_name": instance.public_name,
        "public": instance.public,
        "ssh_from": [str(block) for block in instance.ssh_from],
    }


def _file_system(system: FileSystem) -> dict[str, Any]:
    return {
        "name": system.aws_name,
        "performance": system.performance,
        "throughput": system.throughput,
        "archive_after_days": system.archive_after_days,
        "backup": system.backup,
        "access_points": {
            point.name: {"path": point.path, "uid": point.uid, "gid": point.gid, "mode": point.mode}
            for point in system.access_points
        },
        "homes": system.path == homes.HOME,
        "subnets": list(system.subnets),
        "tags": dict(system.tags),
    }


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        "bucket": bucket.bucket,
        "versions_days": bucket.versions_days,
        "archive_days": bucket.archive_days,
        "archive_class": "STANDARD_IA",
        "expire": dict(bucket.expire),
        "tags": dict(bucket.tags),
    }


def _web_identity(cluster: Cluster, identity: WebIdentity) -> dict[str, Any]:
    work = cluster.storage.work
    store = {"bucket": work.bucket, "kms_key": cluster.region(work.site).kms_key} if work else None
    return {
        "issuer": {
            "bucket": identity.bucket,
            **{_SERVED[each.served_by]: each.url or each.folder.rstrip("/") for each in identity.issuers},
            "tags": dict(identity.tags),
        },
        "store": store,
        "volumes": {
            each.name: {**_rights(each), "kms_key": cluster.region(each.site).kms_key}
            for each in volumes.with_volumes(cluster)
        },
        "roles": dict(identity.roles),
        **({"tracking": cluster.tracking.role} if cluster.tracking else {}),
    }


def _tracking_database(cluster: Cluster, database: ManagedDatabase) -> dict[str, Any]:
    return {
        "name": database.name,
        "subnets": list(database.subnets),
        "instance_class": database.instance_class,
        "storage_gib": database.storage_gib,
        "storage_limit_gib": database.storage_limit_gib,
        "multi_az": database.multi_az,
        "backup_days": database.backup_days,
        "kms_key": cluster.region(database.site).kms_key,
        "tags": dict(database.tags),
    }


def _dns(cluster: Cluster) -> dict[str, Any]:
    dns, plane = cluster.dns, cluster.control_plane
    return {
        "zone": dns.zone,
        "ttl": dns.ttl,
        "api": plane.endpoint if plane else "",
        "records": _records(dns.records),
        "public": {"zone": dns.public.name, "id": dns.public.id} if dns.public else None,
        "public_records": _records(dns.public.records if dns.public else ()),
    }


def _records(records: Iterable[Record]) -> dict[str, Any]:
    return {
        f"{each.name} {each.type}": {
            "name": each.name,
            "type": each.type,
            "values": list(each.values),
            "ttl": each.ttl,
        }
        for each in records
    }
