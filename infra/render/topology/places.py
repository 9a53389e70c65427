"""Places and the address plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from infra.model import Cluster
from infra.model.places import Link, PhysicalNode, PhysicalSite, Region, Subnet
from infra.model.remote import VpnServer
from infra.render.topology import wording
from infra.render.topology.items import (
    LINK_LOCAL,
    PODS,
    SERVICES,
    SUPERNET,
    TUNNELS,
    Item,
    bus_id,
    door_id,
    facts,
    groups_by_region,
    link_id,
    peering_id,
    server_facts,
    servers,
    site_tunnels,
)

_RESERVED: Final = 5
"""Addresses that AWS keeps of every subnet (VPC User Guide, "Subnet sizing")."""


def tell(cluster: Cluster) -> Iterator[Item]:
    """Ranges, regions and their subnets, sites and their nodes."""
    yield from _ranges(cluster)
    yield from _regions(cluster)
    yield from _sites(cluster)


def _ranges(cluster: Cluster) -> Iterator[Item]:
    network = cluster.network
    yield Item(
        SUPERNET,
        "range",
        "Supernet",
        str(network.supernet),
        facts(
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
        facts(
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
        facts(("Block", network.services), ("Size", wording.size(network.services))),
        (str(network.services),),
    )
    between = [tunnel for _, tunnel in site_tunnels(cluster)]
    routing = {link.routing for link in network.links} | {tunnel.routing for tunnel in between}
    if routing:
        yield Item(
            TUNNELS,
            "range",
            "Tunnels",
            str(LINK_LOCAL),
            facts(
                ("VPN connections", len(network.links)),
                ("Their tunnels", sum(len(link.tunnels) for link in network.links)),
                ("Between sites", len(between)),
                ("Routing", ", ".join(sorted(routing))),
            ),
            related=(
                *(link_id(link.name) for link in network.links),
                *(link_id(tunnel.link) for tunnel in between),
            ),
        )


def _regions(cluster: Cluster) -> Iterator[Item]:
    pools = groups_by_region(cluster)
    doors = {server.site for server in cluster.access.vpn.servers}
    links: dict[str, list[Link]] = {}
    for link in cluster.network.links:
        links.setdefault(link.aws_site, []).append(link)
    peers: dict[str, list[str]] = {}
    for peering in cluster.network.peerings:
        for place, other in (
            (peering.requester, peering.accepter),
            (peering.accepter, peering.requester),
        ):
            peers.setdefault(place, []).extend((peering_id(peering.name), other))
    for region in cluster.regions:
        here = pools[region.name]
        gateways = sorted(set(region.nat.values()))
        connected = links.get(region.name, [])
        yield Item(
            region.name,
            "region",
            region.name,
            region.location,
            facts(
                ("AWS region", region.region),
                ("Overflow", "1, primary" if region.primary else region.order + 1),
                ("VPC", f"{region.vpc} · {wording.size(region.vpc)}"),
                ("Zones", ", ".join(region.zones)),
                ("NAT", ", ".join(gateways) or "none"),
                ("Endpoints", wording.services(each.name for each in region.endpoints)),
                ("BGP", f"AS {region.asn}"),
                ("Flow logs", _flow_logs(region)),
                ("Pools", len(here)),
                ("Nodes", wording.span(sum(g.min for _, g in here), sum(g.max for _, g in here))),
                (
                    "At full size",
                    wording.hourly(wording.total(wording.full_price(p, g) for p, g in here), ""),
                ),
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
        facts(
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
    between: dict[str, dict[str, None]] = {}
    """Tunnels to other sites, and those sites."""
    count: Counter[str] = Counter()
    for start, tunnel in site_tunnels(cluster):
        for here, there in ((start.site, tunnel.peer), (tunnel.peer, start.site)):
            between.setdefault(here, {}).update({link_id(tunnel.link): None, there: None})
            count[here] += 1
    known = servers(cluster)
    for site in cluster.sites:
        gateway = site.gateway
        connected = links.get(site.name, [])
        gpus = sum(node.gpus.count for node in site.nodes if node.gpus)
        yield Item(
            site.name,
            "physical site",
            site.name,
            site.location,
            facts(
                ("LAN", f"{site.lan} · {wording.size(site.lan)}"),
                ("Location", site.location),
                ("Gateway", ", ".join(map(str, gateway.addresses)) if gateway else "none"),
                ("On node", gateway.node if gateway else None),
                ("Routing", wording.routing(gateway.routing, gateway.asn) if gateway else None),
                ("Behind NAT", "yes" if gateway and gateway.behind_nat else None),
                ("Nodes", len(site.nodes)),
                ("GPUs", gpus or None),
                ("VPN", wording.count(len(connected), "connection")),
                ("To other sites", wording.count(count[site.name], "tunnel")),
            ),
            (str(site.lan), *(str(address) for address in (gateway.addresses if gateway else ()))),
            related=(
                *(link_id(link.name) for link in connected),
                *(link.aws_site for link in connected),
                *between.get(site.name, ()),
                *((door_id(site.name),) if site.name in doors else ()),
            ),
            via=(bus_id("vpn", site.name), bus_id("sites", site.name), bus_id("access", site.name)),
        )
        for node in site.nodes:
            yield _node(site, node, known.get((site.name, node.name)))


def _node(site: PhysicalSite, node: PhysicalNode, server: VpnServer | None) -> Item:
    cards = node.gpus
    return Item(
        f"{site.name}/nodes/{node.name}",
        "node",
        node.name,
        str(node.address),
        facts(
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
            *(server_facts(server) if server else ()),
        ),
        (str(node.address),),
        parent=site.name,
        related=(door_id(site.name),) if server else (),
    )
