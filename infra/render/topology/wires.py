"""Lines between places: a lane each while they are few, a shared bus once they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.model import Cluster
from infra.model.places import Link
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.render.topology import wording
from infra.render.topology.items import CLIENTS, bus_id, door_id, link_id, peering_id, site_tunnels
from infra.render.topology.marks import Pen, text
from infra.render.topology.measure import width
from infra.render.topology.shapes import Text, Wire, route

LANE: Final = 22
PORT: Final = 10
_EDGE: Final = 18
_PEER: Final = 140
"""How far from a card's edge its peerings begin, so that a word fits between neighbours."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a place stands."""

    x: int
    y: int
    w: int
    h: int

    @property
    def right(self) -> int:
        return self.x + self.w

    @property
    def bottom(self) -> int:
        return self.y + self.h

    @property
    def middle(self) -> int:
        return self.x + self.w // 2


def peerings(pen: Pen, cluster: Cluster, slots: Mapping[str, Slot]) -> Iterator[Wire]:
    """Each peering of a single row of regions, over the cards, the wider the higher."""
    order = [region.name for region in cluster.regions]
    for peering in cluster.network.peerings:
        one, other = sorted((peering.requester, peering.accepter), key=order.index)
        reach = order.index(other) - order.index(one)
        start, end = slots[one], slots[other]
        y = start.y - 14 - LANE * (reach - 1)
        left = start.right - _PEER + PORT * (1 - reach)
        right = end.x + _PEER + PORT * (reach - 1)
        name = peering_id(peering.name)
        middle = (left + right) // 2
        yield Wire(
            name,
            f"peering {pen.changes.get(name, '')}".strip(),
            route([(left, start.y), (left, y), (right, y), (right, end.y)]),
            (Text(middle, y + 4, wording.peering(cluster.network), "small dim halo", "middle"),),
            pen.badge(name, left, y),
            pen.label(name),
        )


def links(pen: Pen, cluster: Cluster, slots: Mapping[str, Slot], top: int) -> Iterator[Wire]:
    """Each VPN connection on a lane of its own, named beside its port below the region."""
    lanes = list(_lanes(cluster, slots, top))
    ports = _site_ports(lanes, slots)
    for lane in lanes:
        link, start, end = lane.link, slots[lane.link.aws_site], slots[lane.link.site]
        target = end.right - _EDGE - PORT * ports[link.name]
        name = link_id(link.name)
        y = lane.y - 5 if target > lane.x else lane.y + 4
        yield Wire(
            name,
            f"vpn {link.routing} {pen.changes.get(name, '')}".strip(),
            route([(lane.x, start.bottom), (lane.x, lane.y), (target, lane.y), (target, end.y)]),
            tuple(_link_words(link, lane.words, y, start.right - 96 - lane.words)),
            pen.badge(name, lane.x, lane.y),
            pen.label(name),
        )


@dataclass(frozen=True, slots=True)
class _Lane:
    """A connection's own height, and where it leaves its region."""

    link: Link
    x: int
    y: int
    words: int
    """Where its name begins: right of all ports of the region."""


def _lanes(cluster: Cluster, slots: Mapping[str, Slot], top: int) -> Iterator[_Lane]:
    """Region by region downwards; of a region's ports the leftmost goes down furthest, so that none cross."""
    sites = [site.name for site in cluster.sites]
    base = top + LANE // 2
    for region in cluster.regions:
        found = [link for link in cluster.network.links if link.aws_site == region.name]
        found.sort(key=lambda link: (sites.index(link.site), link.name))
        left = slots[region.name].x + _EDGE
        for index, link in enumerate(found):
            y = base + LANE * (len(found) - 1 - index)
            yield _Lane(link, left + PORT * index, y, left + PORT * len(found))
        base += LANE * len(found)


def _site_ports(lanes: Sequence[_Lane], slots: Mapping[str, Slot]) -> dict[str, int]:
    """Each link's place among its site's ports, from the right.

    Lanes that come from the right end first, the lowest at the very right; then those from the left, the
    highest first: so the lanes of a site don't cross where they come down to it.
    """
    ports: dict[str, int] = {}
    for site in {lane.link.site for lane in lanes}:
        mine = [lane for lane in lanes if lane.link.site == site]
        right = slots[site].right
        mine.sort(key=lambda lane: (lane.x < right, lane.y if lane.x < right else -lane.y))
        ports |= {lane.link.name: index for index, lane in enumerate(mine)}
    return ports


def _link_words(link: Link, x: int, y: int, room: int) -> Iterator[Text]:
    """``rack-a  169.254.4.4/30 · 169.254.5.4/30  AS 65010, 64513``, as far as there is room."""
    name = link.customer_gateway
    yield text(x, y, name, "small strong halo", room // 3)
    x += min(round(width(name, "small") * 1.08), room // 3) + 8
    blocks = " · ".join(str(tunnel.inside) for tunnel in link.tunnels)
    yield Text(x, y, blocks, "mono-small dim halo")
    x += round(width(blocks, "mono-small")) + 8
    rest = f"AS {link.site_asn}, {link.aws_asn}" if link.routing == "bgp" else "static routes"
    yield Text(x, y, rest, "small dim halo")


def tunnels(pen: Pen, cluster: Cluster, slots: Mapping[str, Slot]) -> Iterator[Wire]:
    """Each tunnel between the sites of a single row, under the cards: regions' peerings mirrored."""
    for index, (gateway, tunnel) in enumerate(site_tunnels(cluster)):
        start, end = sorted((slots[gateway.site], slots[tunnel.peer]), key=lambda slot: slot.x)
        y = start.bottom + LANE * (index + 1)
        left, right = start.right - _PEER - PORT * index, end.x + _PEER + PORT * index
        name = link_id(tunnel.link)
        yield Wire(
            name,
            f"tunnel {tunnel.routing} {pen.changes.get(name, '')}".strip(),
            route([(left, start.bottom), (left, y), (right, y), (right, end.bottom)]),
            tuple(_tunnel_words(gateway, tunnel, (left + right) // 2, y - 6)),
            pen.badge(name, left, y),
            pen.label(name),
        )


def _tunnel_words(gateway: SiteGateway, tunnel: SiteTunnel, middle: int, y: int) -> Iterator[Text]:
    """``169.254.2.4/30  AS 65010, 65020``, over the middle of the lane."""
    block = wording.inside(tunnel)
    rest = f"AS {gateway.asn}, {tunnel.remote_asn}" if tunnel.routing == "bgp" else "static routes"
    first, second = round(width(block, "mono-small")), round(width(rest, "small"))
    x = middle - (first + 8 + second) // 2
    yield Text(x, y, block, "mono-small dim halo")
    yield Text(x + first + 8, y, rest, "small dim halo")


def doors(pen: Pen, cluster: Cluster, slots: Mapping[str, Slot], y: int) -> Iterator[Wire]:
    """Laptops to each VPN server, along one lane over the lower row."""
    start = slots[CLIENTS]
    regions = {region.name for region in cluster.regions}
    for server in cluster.access.vpn.servers:
        end = slots[server.site]
        inside = server.site in regions
        x, stop = (end.right - 84, end.bottom) if inside else (end.x + 220, end.y)
        points = [(start.middle, start.y), (start.middle, y), (x, y), (x, stop)]
        yield Wire(
            door_id(server.site),
            "door",
            route(points),
            (),
            (),
            pen.label(door_id(server.site)),
        )


@dataclass(frozen=True, slots=True)
class Bus:
    """A shared line: a trunk down one side of the picture, a lane along each row that has members."""

    name: str
    look: str
    trunk: int
    hub: int
    """The trunk's height at which all paths meet."""
    step: int
    """How far its lanes are from the middle of the gutters, and its ports from the middle of the boxes."""
    words: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A box on a bus: where it stands and the lane it goes to, above or below it."""

    place: str
    slot: Slot
    lane: int


def bus(line: Bus, stops: Iterable[Stop]) -> Iterator[Wire]:
    """One path for each place, from its box to the hub; together they are the bus."""
    for stop in stops:
        below = stop.lane > stop.slot.y
        x = stop.slot.middle + line.step * 3
        y = stop.lane + line.step
        edge = stop.slot.bottom if below else stop.slot.y
        yield Wire(
            bus_id(line.name, stop.place),
            f"{line.look} bundled",
            route([(x, edge), (x, y), (line.trunk, y), (line.trunk, line.hub)]),
            (),
            (),
            f"{line.words}: {stop.place}",
            tab=-1,
        )


@dataclass(frozen=True, slots=True)
class BusWords:
    """What each bus carries."""

    vpn: str
    mesh: str
    sites: str
    access: str


def bus_words(cluster: Cluster) -> BusWords:
    """What the buses carry: VPN connections, regions' mesh, tunnels between sites, laptops."""
    network = cluster.network
    between = site_tunnels(cluster)
    pairs = {(gateway.site, tunnel.peer) for gateway, tunnel in between}
    ends = {end for pair in pairs for end in pair}
    sites = f"{wording.mesh(len(ends), len(pairs))}{wording.count(len(between), 'tunnel')} between sites"
    tunnels = sum(len(link.tunnels) for link in network.links)
    vpn = f"{wording.count(len(network.links), 'VPN connection')} · {wording.count(tunnels, 'tunnel')}"
    peerings = len(network.peerings)
    joined = wording.mesh(len(cluster.regions), peerings)
    mesh = f"{joined}{wording.count(peerings, wording.peering(network))}"
    servers = wording.count(len(cluster.access.vpn.servers), "VPN server")
    return BusWords(vpn, mesh, sites, f"Laptops · {servers}")
