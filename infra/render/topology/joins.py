"""Lines between places: VPN connections, tunnels between sites, peerings."""

from __future__ import annotations

from collections.abc import Iterator

from infra.model import Cluster
from infra.model.places import Tunnel
from infra.render.topology import wording
from infra.render.topology.items import Item, bus_id, facts, link_id, peering_id, site_tunnels


def tell(cluster: Cluster) -> Iterator[Item]:
    """VPN connections, tunnels between physical sites, peerings."""
    yield from _links(cluster)
    yield from _between(cluster)
    yield from _peerings(cluster)


def _links(cluster: Cluster) -> Iterator[Item]:
    for link in cluster.network.links:
        yield Item(
            link_id(link.name),
            "VPN connection",
            f"{link.site} {wording.DASH} {link.aws_site}",
            " · ".join(str(tunnel.inside) for tunnel in link.tunnels),
            facts(
                ("Site", f"{link.site}, {link.address}"),
                ("Routing", wording.routing(link.routing, link.site_asn, link.aws_asn)),
                *((f"Tunnel {tunnel.number}", _tunnel(tunnel)) for tunnel in link.tunnels),
                ("From the site", ", ".join(map(str, link.site_blocks))),
                ("From AWS", wording.some(link.aws_blocks)),
                ("Attached to", "the transit gateway" if cluster.network.transit else None),
            ),
            tuple(str(tunnel.inside) for tunnel in link.tunnels),
            related=(link.site, link.aws_site),
            via=(bus_id("vpn", link.site), bus_id("vpn", link.aws_site)),
        )


def _tunnel(tunnel: Tunnel) -> str:
    return f"{tunnel.inside} · AWS {tunnel.aws_inside} · site {tunnel.site_inside}"


def _between(cluster: Cluster) -> Iterator[Item]:
    lans = {site.name: str(site.lan) for site in cluster.sites}
    for gateway, tunnel in site_tunnels(cluster):
        ends = (gateway.site, tunnel.peer)
        yield Item(
            link_id(tunnel.link),
            "site tunnel",
            f"{ends[0]} {wording.DASH} {ends[1]}",
            wording.inside(tunnel),
            facts(
                (ends[0], f"{tunnel.local_id} · inside {tunnel.inside_local} · LAN {lans[ends[0]]}"),
                (ends[1], f"{tunnel.remote} · inside {tunnel.inside_remote} · LAN {lans[ends[1]]}"),
                ("Routing", wording.routing(tunnel.routing, gateway.asn, tunnel.remote_asn)),
                ("Begun by", ends[0] if tunnel.initiates else ends[1]),
                ("ESP", "in UDP, for NAT" if tunnel.encapsulated else None),
                ("Preference", tunnel.preference),
                ("MTU", f"{tunnel.mtu}, MSS {tunnel.mss}"),
            ),
            (wording.inside(tunnel),),
            related=ends,
            via=tuple(bus_id("sites", end) for end in ends),
        )


def _peerings(cluster: Cluster) -> Iterator[Item]:
    blocks = {region.name: str(region.vpc) for region in cluster.regions}
    for peering in cluster.network.peerings:
        ends = (peering.requester, peering.accepter)
        yield Item(
            peering_id(peering.name),
            "peering",
            f"{peering.requester} {wording.DASH} {peering.accepter}",
            wording.peering(cluster.network),
            facts(("Asks", f"{ends[0]}, {blocks[ends[0]]}"), ("Accepts", f"{ends[1]}, {blocks[ends[1]]}")),
            related=ends,
            via=tuple(bus_id("mesh", end) for end in ends),
        )
