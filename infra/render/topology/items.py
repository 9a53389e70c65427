"""What there is to tell of a cluster: every element by its id, with its facts, blocks and relations.

This is what hovering shows and what the search box looks through, whether or not the element is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final

from infra.catalogue import regions as known
from infra.model import Cluster
from infra.model.machines import Instance, NodeGroup, NodePool
from infra.model.places import Link, PhysicalNode, PhysicalSite, Region, Subnet, Tunnel
from infra.render.topology import wording

ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "add": ("+", "added"),
    "change": ("~", "changed in place"),
    "replace": ("±", "replaced"),
    "destroy": (wording.MINUS, "destroyed"),
}
"""What a plan may do to an element: its sign, and the word for it."""

CLIENTS: Final = "access/clients"
SUPERNET: Final = "supernet"
PODS: Final = "kubernetes/pods"
SERVICES: Final = "kubernetes/services"
TUNNELS: Final = "links"
GONE: Final = "gone"
LINK_LOCAL: Final = IPv4Network("169.254.0.0/16")
"""Where tunnels have their inside blocks (AWS Site-to-Site VPN User Guide, "Tunnel options")."""

_RESERVED: Final = 5
"""Addresses that AWS keeps of every subnet (VPC User Guide, "Subnet sizing")."""

_ROLES: Final = {"control-plane": "master", "ssh-node": "SSH node", "access-gateway": "VPN end point"}


@dataclass(frozen=True, slots=True)
class Item:
    """An element of the cluster, told."""

    id: str
    kind: str
    title: str
    note: str
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[str, ...] = ()
    """Address blocks in which it is the one to be found."""
    parent: str = ""
    related: tuple[str, ...] = ()
    """Elements that light up with it."""
    via: tuple[str, ...] = ()
    """Wires that stand for it where it has none of its own."""


def link_id(name: str) -> str:
    """``link/rack-a-us-west-2``."""
    return f"link/{name}"


def peering_id(name: str) -> str:
    """``peering/us-east-1-us-west-2``."""
    return f"peering/{name}"


def door_id(place: str) -> str:
    """Where laptops come in: ``access/clients/us-west-2``."""
    return f"{CLIENTS}/{place}"


def bus_id(bus: str, place: str) -> str:
    """The wire from a place to a bus: ``bus/vpn/us-west-2``."""
    return f"bus/{bus}/{place}"


def machines(cluster: Cluster) -> tuple[Instance, ...]:
    """Masters, VPN end points and SSH nodes."""
    masters = cluster.control_plane.masters if cluster.control_plane else ()
    return (*masters, *cluster.access_gateways, *cluster.ssh_nodes)


def groups_by_region(cluster: Cluster) -> dict[str, list[tuple[NodePool, NodeGroup]]]:
    """The pools of each region: most wanted first, then by name."""
    found: dict[str, list[tuple[NodePool, NodeGroup]]] = {region.name: [] for region in cluster.regions}
    for pool in sorted(cluster.pools, key=lambda pool: (-pool.priority, pool.name)):
        for group in pool.groups:
            found[group.region].append((pool, group))
    return found


def items(cluster: Cluster) -> tuple[Item, ...]:
    """Every element, places first."""
    return (
        *_ranges(cluster),
        *_regions(cluster),
        *_sites(cluster),
        *_pools(cluster),
        *_machines(cluster),
        *_storage(cluster),
        *_links(cluster),
        *_peerings(cluster),
    )


def gone(name: str) -> Item:
    """An element that a plan speaks of and the cluster has no more."""
    return Item(name, GONE, name, "not in the spec any more", ())


def _facts(*pairs: tuple[str, object]) -> tuple[tuple[str, str], ...]:
    """The pairs that have a value."""
    return tuple((label, str(value)) for label, value in pairs if value not in (None, "", ()))


def _hourly(price: float | None) -> str | None:
    return f"{wording.money(price)} an hour on demand" if price else None


def _ranges(cluster: Cluster) -> Iterator[Item]:
    network, vpn = cluster.network, cluster.access.vpn
    yield Item(
        SUPERNET,
        "range",
        "Supernet",
        str(network.supernet),
        _facts(
            ("Block", network.supernet),
            ("Size", wording.size(network.supernet)),
            ("Inside", ", ".join(map(str, network.private))),
        ),
        (str(network.supernet),),
    )
    yield Item(
        PODS,
        "range",
        "Pods",
        str(network.pods),
        _facts(
            ("Block", network.pods),
            ("A node", f"/{network.pods_node_prefix}"),
            ("Pods a node", cluster.kubernetes.pods_per_node),
            ("Backend", cluster.kubernetes.backend),
        ),
        (str(network.pods),),
    )
    yield Item(
        SERVICES,
        "range",
        "Services",
        str(network.services),
        _facts(("Block", network.services), ("Size", wording.size(network.services))),
        (str(network.services),),
    )
    if network.links:
        routing = sorted({link.routing for link in network.links})
        yield Item(
            TUNNELS,
            "range",
            "Tunnels",
            str(LINK_LOCAL),
            _facts(
                ("Connections", len(network.links)),
                ("Tunnels", sum(len(link.tunnels) for link in network.links)),
                ("Routing", ", ".join(routing)),
            ),
            related=tuple(link_id(link.name) for link in network.links),
        )
    users = sum(user.vpn for user in cluster.access.users)
    yield Item(
        CLIENTS,
        "laptops",
        "Laptops",
        str(network.clients),
        _facts(
            ("Block", network.clients),
            ("Come in at", ", ".join(f"{each.site} ({each.host or each.node})" for each in vpn.servers)),
            ("Order", "at random" if vpn.random else "as listed"),
            ("Traffic", "all through the VPN" if vpn.full_tunnel else "the cluster's only"),
            ("People", wording.count(users, "user")),
            ("Certificates", wording.count(vpn.certificate_days, "day")),
        ),
        (str(network.clients),),
        related=tuple(other for each in vpn.servers for other in (each.site, door_id(each.site))),
        via=tuple(bus_id("access", each.site) for each in vpn.servers),
    )
    for order, server in enumerate(vpn.servers, start=1):
        folder = "machines" if server.kind == "aws" else "nodes"
        yield Item(
            door_id(server.site),
            "way in",
            f"Laptops {wording.DASH} {server.site}",
            server.host or server.node,
            _facts(
                ("Connect to", server.host or "an elastic address, known after apply"),
                ("Served by", f"{server.node} in {server.site}"),
                ("Place", "any, at random" if vpn.random else order),
            ),
            parent=CLIENTS,
            related=(server.site, f"{server.site}/{folder}/{server.node}"),
            via=(bus_id("access", server.site), bus_id("access", CLIENTS)),
        )


def _regions(cluster: Cluster) -> Iterator[Item]:
    pools = groups_by_region(cluster)
    doors = {server.site for server in cluster.access.vpn.servers}
    links: dict[str, list[Link]] = {}
    for link in cluster.network.links:
        links.setdefault(link.region, []).append(link)
    peers: dict[str, list[str]] = {}
    for peering in cluster.network.peerings:
        for place, other in (
            (peering.requester, peering.accepter),
            (peering.accepter, peering.requester),
        ):
            peers.setdefault(place, []).extend((peering_id(peering.name), other))
    for region in cluster.regions:
        where = known.find(region.region)
        here = pools[region.name]
        gateways = sorted(set(region.nat.values()))
        connected = links.get(region.name, [])
        yield Item(
            region.name,
            "region",
            region.name,
            where.location if where else region.region,
            _facts(
                ("AWS region", region.region),
                ("Overflow", "1, primary" if region.primary else region.order + 1),
                ("VPC", f"{region.vpc} · {wording.size(region.vpc)}"),
                ("Zones", ", ".join(region.zones)),
                ("NAT", ", ".join(gateways) or "none"),
                ("Endpoints", wording.services(region.endpoints)),
                ("BGP", f"AS {region.asn}"),
                ("Flow logs", _flow_logs(region)),
                ("Pools", len(here)),
                ("Nodes", wording.span(sum(g.min for _, g in here), sum(g.max for _, g in here))),
                ("At full size", _hourly(wording.total(wording.full_price(p, g) for p, g in here))),
                ("VPN", wording.count(len(connected), "connection")),
            ),
            (str(region.vpc),),
            related=(
                *(link_id(link.name) for link in connected),
                *(link.site for link in connected),
                *peers.get(region.name, ()),
                *((door_id(region.name),) if region.name in doors else ()),
            ),
            via=(bus_id("mesh", region.name), bus_id("vpn", region.name), bus_id("access", region.name)),
        )
        for subnet in region.subnets:
            yield _subnet(region, subnet)


def _flow_logs(region: Region) -> str:
    logs = region.flow_logs
    return f"{logs.traffic.lower()}, {wording.count(logs.retention_days, 'day')}" if logs else "off"


def _subnet(region: Region, subnet: Subnet) -> Item:
    way_out = {"public": "Internet gateway", "private": f"NAT in {region.nat.get(subnet.zone, '')}"}
    route = way_out.get(subnet.tier, "") if subnet.tier == "public" or subnet.zone in region.nat else "none"
    return Item(
        f"{region.name}/subnets/{subnet.name}",
        "subnet",
        subnet.name,
        str(subnet.block),
        _facts(
            ("Block", subnet.block),
            ("Usable", wording.count(max(subnet.block.num_addresses - _RESERVED, 0), "address", "addresses")),
            ("Tier", subnet.tier),
            ("Zone", subnet.zone),
            ("Way out", route),
        ),
        (str(subnet.block),),
        parent=region.name,
    )


def _sites(cluster: Cluster) -> Iterator[Item]:
    doors = {server.site for server in cluster.access.vpn.servers}
    links: dict[str, list[Link]] = {}
    for link in cluster.network.links:
        links.setdefault(link.site, []).append(link)
    for site in cluster.sites:
        gateway = site.gateway
        connected = links.get(site.name, [])
        gpus = sum(node.gpus.count for node in site.nodes if node.gpus)
        yield Item(
            site.name,
            "physical site",
            site.name,
            site.location,
            _facts(
                ("LAN", f"{site.lan} · {wording.size(site.lan)}"),
                ("Location", site.location),
                ("Gateway", ", ".join(map(str, gateway.addresses)) if gateway else "none"),
                ("On node", gateway.node if gateway else None),
                ("Routing", wording.routing(gateway.routing, gateway.asn) if gateway else None),
                ("Behind NAT", "yes" if gateway and gateway.behind_nat else None),
                ("Nodes", len(site.nodes)),
                ("GPUs", gpus or None),
                ("VPN", wording.count(len(connected), "connection")),
            ),
            (str(site.lan), *(str(address) for address in (gateway.addresses if gateway else ()))),
            related=(
                *(link_id(link.name) for link in connected),
                *(link.region for link in connected),
                *((door_id(site.name),) if site.name in doors else ()),
            ),
            via=(bus_id("vpn", site.name), bus_id("access", site.name)),
        )
        for node in site.nodes:
            yield _node(site, node)


def _node(site: PhysicalSite, node: PhysicalNode) -> Item:
    cards = node.gpus
    return Item(
        f"{site.name}/nodes/{node.name}",
        "node",
        node.name,
        str(node.address),
        _facts(
            ("Address", node.address),
            ("Name", node.fqdn),
            ("MAC", node.mac),
            ("Rack", node.rack),
            ("Roles", ", ".join(node.roles)),
            ("CPUs", node.cpus),
            ("Memory", wording.memory(node.memory_mib)),
            ("GPUs", f"{wording.card(cards)}, {wording.memory(cards.memory_mib)} each" if cards else None),
            ("Driver", cards.driver if cards else None),
            ("Disks", ", ".join(f"{wording.memory(disk.size_mib)} {disk.use}" for disk in node.disks)),
        ),
        (str(node.address),),
        parent=site.name,
    )


def _pools(cluster: Cluster) -> Iterator[Item]:
    for pool in cluster.pools:
        market, names = wording.market(pool.market), wording.types(pool)
        taints = ", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in pool.taints)
        disks = ", ".join(f"{disk.size_gib} GiB {disk.type}" for disk in pool.scratch_disks)
        everywhere = tuple(f"{group.region}/{pool.name}" for group in pool.groups)
        for group in pool.groups:
            yield Item(
                f"{group.region}/{pool.name}",
                "node pool",
                pool.name,
                f"{names.split(',')[0]} in {group.region}",
                _facts(
                    ("Types", names),
                    ("GPUs", wording.card(pool.gpus) if pool.gpus else None),
                    ("Market", market),
                    ("Nodes", wording.span(group.min, group.max)),
                    ("Price", _hourly(group.hourly_price)),
                    ("At full size", _hourly(wording.full_price(pool, group))),
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
                parent=group.region,
                related=tuple(other for other in everywhere if other != f"{group.region}/{pool.name}"),
            )


def _machines(cluster: Cluster) -> Iterator[Item]:
    plane = cluster.control_plane
    for machine in machines(cluster):
        yield Item(
            f"{machine.region}/machines/{machine.hostname}",
            _ROLES[machine.role],
            machine.hostname,
            machine.fqdn,
            _facts(
                ("Name", machine.fqdn),
                ("Type", machine.instance_type),
                ("Zone", machine.zone),
                ("Subnet", machine.subnet),
                ("Image", machine.image),
                ("Address", "public, elastic" if machine.public else "private"),
                ("SSH from", ", ".join(map(str, machine.ssh_from))),
                ("Behind", f"{plane.endpoint}:{plane.port}" if plane and machine in plane.masters else None),
                ("Price", _hourly(machine.hourly_price)),
                ("Instance", machine.name),
            ),
            parent=machine.region,
            related=(
                f"{machine.region}/subnets/{machine.subnet}",
                *((CLIENTS,) if machine.role == "access-gateway" else ()),
            ),
        )


def _storage(cluster: Cluster) -> Iterator[Item]:
    for system in cluster.storage.efs:
        yield Item(
            f"{system.region}/efs/{system.name}",
            "EFS",
            system.name,
            system.path,
            _facts(
                ("Path", system.path),
                ("Throughput", system.throughput),
                ("Performance", system.performance),
                ("Access points", ", ".join(f"{each.name} ({each.path})" for each in system.access_points)),
                ("Archived", _after(system.archive_after_days)),
                ("Backup", "daily" if system.backup else "none"),
                ("Name", system.aws_name),
            ),
            parent=system.region,
            related=tuple(f"{system.region}/subnets/{subnet}" for subnet in system.subnets),
        )
    for bucket in cluster.storage.s3:
        yield Item(
            f"{bucket.region}/s3/{bucket.name}",
            "S3 bucket",
            bucket.name,
            bucket.bucket,
            _facts(
                ("Bucket", bucket.bucket),
                ("Path", bucket.path),
                ("Access", "read only" if bucket.read_only else "read and write"),
                ("Old versions", wording.count(bucket.versions_days, "day")),
                ("Archived", _after(bucket.archive_days)),
                ("Expires", _after(bucket.expire_days)),
            ),
            parent=bucket.region,
        )
    for export in cluster.storage.nfs:
        host = export.server.removesuffix(f".{cluster.domain}")
        yield Item(
            f"{export.site}/nfs/{export.name}",
            "NFS export",
            export.name,
            export.path,
            _facts(
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


def _links(cluster: Cluster) -> Iterator[Item]:
    for link in cluster.network.links:
        yield Item(
            link_id(link.name),
            "VPN connection",
            f"{link.site} {wording.DASH} {link.region}",
            " · ".join(str(tunnel.inside) for tunnel in link.tunnels),
            _facts(
                ("Site", f"{link.site}, {link.address}"),
                ("Routing", wording.routing(link.routing, link.site_asn, link.aws_asn)),
                *((f"Tunnel {tunnel.number}", _tunnel(tunnel)) for tunnel in link.tunnels),
                ("From the site", ", ".join(map(str, link.site_blocks))),
                ("From AWS", ", ".join(map(str, link.aws_blocks))),
            ),
            tuple(str(tunnel.inside) for tunnel in link.tunnels),
            related=(link.site, link.region),
            via=(bus_id("vpn", link.site), bus_id("vpn", link.region)),
        )


def _tunnel(tunnel: Tunnel) -> str:
    return f"{tunnel.inside} · AWS {tunnel.aws_inside} · site {tunnel.site_inside}"


def _peerings(cluster: Cluster) -> Iterator[Item]:
    blocks = {region.name: str(region.vpc) for region in cluster.regions}
    for peering in cluster.network.peerings:
        ends = (peering.requester, peering.accepter)
        yield Item(
            peering_id(peering.name),
            "peering",
            f"{peering.requester} {wording.DASH} {peering.accepter}",
            wording.peering(cluster.network),
            _facts(("Asks", f"{ends[0]}, {blocks[ends[0]]}"), ("Accepts", f"{ends[1]}, {blocks[ends[1]]}")),
            related=ends,
            via=tuple(bus_id("mesh", end) for end in ends),
        )
