"""What AWS would have answered: addresses for every tunnel and machine of a cluster, always the same ones."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

from infra.catalogue.regions import is_zone_id
from infra.model import Cluster, Outputs
from infra.model.outputs import Addresses, FileSystemIds

OUTSIDE = IPv4Network("203.0.113.0/24")
"""RFC 5737, TEST-NET-3: AWS's ends of tunnels, from the first address up."""

PUBLIC = IPv4Network("192.0.2.0/24")
"""RFC 5737, TEST-NET-1: elastic addresses."""


def outputs_for(cluster: Cluster) -> Outputs:
    """The outputs of an apply."""
    tunnels: dict[str, tuple[IPv4Address, IPv4Address]] = {}
    for index, link in enumerate(cluster.network.links):
        tunnels[link.name] = (OUTSIDE[2 * index + 1], OUTSIDE[2 * index + 2])
    masters = cluster.control_plane.masters if cluster.control_plane else ()
    instances = {}
    for index, one in enumerate((*masters, *cluster.ssh_nodes, *cluster.access_gateways)):
        region = cluster.region(one.site)
        block = next(subnet.block for subnet in region.subnets if subnet.name == one.subnet)
        # AWS keeps the first four addresses of a subnet.
        instances[one.hostname] = Addresses(block[10 + index], PUBLIC[10 + index] if one.public else None)
    file_systems: dict[str, dict[str, FileSystemIds]] = {}
    for index, system in enumerate(cluster.storage.efs, start=1):
        points = {
            point.name: f"fsap-{index:08x}{number:09x}"
            for number, point in enumerate(system.access_points, start=1)
        }
        file_systems.setdefault(system.site, {})[system.name] = FileSystemIds(f"fs-{index:017x}", points)
    zones = {
        region.name: {
            zone: f"{region.region}{'abcdef'[index]}" if is_zone_id(zone) else zone
            for index, zone in enumerate(region.zones)
        }
        for region in cluster.regions
    }
    names = cluster.web_identity.roles if cluster.web_identity else {}
    roles = {namespace: f"arn:aws:iam::123456789012:role/{name}" for namespace, name in names.items()}
    database = ""
    if cluster.tracking is not None:
        roles["mlflow"] = f"arn:aws:iam::123456789012:role/{cluster.tracking.role}"
        if (managed := cluster.tracking.managed) is not None:
            database = f"{managed.name}.c0abcdefghij.{managed.region}.rds.amazonaws.com"
    stated = cluster.web_identity.issuers if cluster.web_identity else ()
    issuers = {str(each.served_by): each.url or "https://d111111abcdef8.cloudfront.net" for each in stated}
    return Outputs(tunnels, instances, file_systems, zones, roles, issuers, database)
