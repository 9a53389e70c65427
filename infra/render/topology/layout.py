"""Where everything stands: pure arithmetic, the same for the same cluster.

A few places are drawn in full, many in brief; lines have a lane each where all places of a kind fit one row,
and share a bus where they do not. From the top: title, address plan, regions in overflow order, the lines
between, physical sites and laptops, what is gone, legend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.model import Cluster
from infra.render.topology import boxes, cards, frame, wires, wording
from infra.render.topology.items import CLIENTS, GONE, Item, groups_by_region, site_tunnels
from infra.render.topology.marks import Pen
from infra.render.topology.measure import width
from infra.render.topology.sections import Draw
from infra.render.topology.shapes import Mark, Picture, Rect, Text, Wire
from infra.render.topology.wires import LANE, Bus, Slot, Stop

MARGIN: Final = 36
GAP: Final = 32
_FULL_REGIONS: Final = 6
_FULL_SITES: Final = 3
"""Laptops are one of them."""
_ABREAST: Final = 3
_WIDTHS: Final = {1: 760, 2: 640, 3: 560}
"""The width of a card by how many stand abreast."""
_BOXES: Final = 1520
"""The width of a picture of boxes alone."""
_BOX_GAP: Final = 12
_REGIONS_ABREAST: Final = (6, 7, 8, 9, 10)
_SITES_ABREAST: Final = (8, 9, 10, 11, 12, 13)
_GUTTER: Final = 44
_BAND: Final = 30


@dataclass(frozen=True, slots=True)
class Grid:
    """How many stand abreast, and how."""

    full: bool
    """As cards rather than as boxes."""
    abreast: int
    width: int
    """Of one card or box."""
    gap: int


@dataclass(slots=True)
class Sheet:
    """The picture as it grows downwards."""

    left: int
    right: int
    y: int
    marks: list[Mark] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    captions: list[Text] = field(default_factory=list)
    slots: dict[str, Slot] = field(default_factory=dict)

    @property
    def inner(self) -> int:
        """The width between the margins."""
        return self.right - self.left

    def band(self, words: str, fact: str = "") -> None:
        """Begin a band with its name and a fact at the right."""
        self.y += _BAND
        self.captions.append(Text(self.left, self.y - 10, words.upper(), "cap band"))
        if fact:
            left = self.left + round(width(words.upper(), "cap") * 1.2) + 20
            self.captions.append(Text(left, self.y - 10, fact, "small dim"))


def lay_out(cluster: Cluster, items: Mapping[str, Item], changes: Mapping[str, str]) -> Picture:
    """The whole picture. ``items`` also has the elements that are gone, ``changes`` only known actions."""
    pen = Pen(items, changes)
    regions, sites = len(cluster.regions), len(cluster.sites) + 1
    apart = max(regions, sites) <= _ABREAST
    full_regions, full_sites = regions <= _FULL_REGIONS, sites <= _FULL_SITES
    abreast = min(max(regions, sites), _ABREAST)
    inner = abreast * _WIDTHS[abreast] + (abreast - 1) * GAP if full_regions or full_sites else _BOXES
    left = MARGIN if apart else MARGIN + _GUTTER
    sheet = Sheet(left, left + inner, frame.TITLE)
    sheet.marks += frame.address_plan(pen, cluster, sheet.left, sheet.y, sheet.inner)
    sheet.y += frame.STRIP
    if regions:
        sheet.band(f"AWS · {wording.count(regions, 'region')}", _overflow(cluster) if regions > 1 else "")
    draw = _apart if apart else _bundled
    draw(
        sheet,
        pen,
        cluster,
        _grid(inner, regions, full_regions, _REGIONS_ABREAST, abreast),
        _grid(inner, sites, full_sites, _SITES_ABREAST, abreast),
    )
    sheet.y += GAP
    lost = [name for name in changes if items[name].kind == GONE]
    if lost:
        sheet.band("No longer in the spec")
        marks, height = frame.lost(pen, sorted(lost), sheet.left, sheet.y, sheet.inner)
        sheet.marks += marks
        sheet.y += height + GAP
    across = sheet.right + left
    return Picture(
        width=across,
        top=frame.TITLE - 8,
        height=sheet.y + frame.KEY,
        title=frame.title(cluster, MARGIN, across - 2 * MARGIN),
        wires=tuple(sheet.wires),
        marks=tuple(sheet.marks),
        captions=tuple(sheet.captions),
        key=frame.signs(pen, sheet.right, sheet.y + 8),
        samples=frame.samples(cluster, sheet.left, sheet.y + 8),
    )


def _overflow(cluster: Cluster) -> str:
    names = [region.name for region in cluster.regions]
    shown = names if len(names) <= _FULL_REGIONS else [*names[:3], "…", names[-1]]
    return "Overflow order: " + " → ".join(["on premises", *shown] if cluster.sites else shown)


def _premises(cluster: Cluster) -> str:
    sites = len(cluster.sites)
    return f"On premises · {wording.count(sites, 'site')}" if sites else "Outside"


def _grid(inner: int, number: int, full: bool, choices: Sequence[int], cards_abreast: int) -> Grid:
    """Cards at their width; boxes as many abreast as leaves the fewest rows and then the fewest gaps."""
    if full:
        return Grid(True, cards_abreast, (inner - GAP * (cards_abreast - 1)) // cards_abreast, GAP)
    abreast = min(choices, key=lambda each: (-(-number // each), -number % each))
    return Grid(False, abreast, (inner - _BOX_GAP * (abreast - 1)) // abreast, _BOX_GAP)


def _region_draws(pen: Pen, cluster: Cluster, full: bool) -> dict[str, Draw]:
    """How to draw each region, in overflow order."""
    groups = groups_by_region(cluster)
    if full:
        return {
            region.name: cards.region_drawing(pen, cluster, region, groups[region.name])
            for region in cluster.regions
        }
    lines = boxes.region_lines(cluster, groups)
    return {region.name: boxes.region_drawing(region, lines[region.name]) for region in cluster.regions}


def _site_draws(pen: Pen, cluster: Cluster, full: bool) -> dict[str, Draw]:
    """How to draw each physical site, by name, and laptops."""
    if full:
        draws = {site.name: cards.site_drawing(pen, cluster, site) for site in cluster.sites}
        return {**draws, CLIENTS: cards.laptops_drawing(pen, cluster)}
    gateways = {gateway.site: gateway for gateway in cluster.gateways}
    draws = {site.name: boxes.site_drawing(site, gateways) for site in cluster.sites}
    return {**draws, CLIENTS: boxes.laptops_drawing(cluster)}


def _rows(draws: Mapping[str, Draw], grid: Grid) -> Iterator[list[str]]:
    names = list(draws)
    for start in range(0, len(names), grid.abreast):
        yield names[start : start + grid.abreast]


def _row(sheet: Sheet, pen: Pen, draws: Mapping[str, Draw], names: Sequence[str], grid: Grid) -> None:
    """One row of places, all as high as the highest."""
    drawn = []
    for index, name in enumerate(names):
        x = sheet.left + index * (sheet.inner + grid.gap) // grid.abreast
        drawn.append((x, name, draws[name](x, sheet.y, grid.width)))
    full = " full" if grid.full else ""
    height = max(card.height for _, _, card in drawn)
    for x, name, card in drawn:
        sheet.slots[name] = Slot(x, sheet.y, grid.width, height)
        rect = Rect(x, sheet.y, grid.width, height, "frame", 8)
        badges = (
            pen.badge(name, x, sheet.y + 23) if grid.full else pen.tally(name, x + grid.width - 6, sheet.y)
        )
        sheet.marks.append(
            pen.mark(name, f"place {card.kind}{full}", rect, card.texts, card.rects, tab=0, badges=badges)
        )
        sheet.marks.extend(card.marks)
    sheet.y += height


def _apart(sheet: Sheet, pen: Pen, cluster: Cluster, regions: Grid, sites: Grid) -> None:
    """Regions in a row, sites in a row, and a lane for each line between."""
    network = cluster.network
    if network.peerings:
        sheet.y += LANE * (len(cluster.regions) - 1) + 2
    draws = _region_draws(pen, cluster, regions.full)
    for row in _rows(draws, regions):
        _row(sheet, pen, draws, row, regions)
    top = sheet.y + 14
    sheet.y = top + LANE * (len(network.links) + 1) - 4
    sheet.band(_premises(cluster))
    lane = sheet.y - _BAND - 4
    draws = _site_draws(pen, cluster, sites.full)
    for row in _rows(draws, sites):
        _row(sheet, pen, draws, row, sites)
    sheet.wires += wires.doors(pen, cluster, sheet.slots, lane)
    sheet.wires += wires.peerings(pen, cluster, sheet.slots)
    sheet.wires += wires.links(pen, cluster, sheet.slots, top)
    sheet.wires += wires.tunnels(pen, cluster, sheet.slots)
    sheet.y += LANE * len(site_tunnels(cluster))


def _bundled(sheet: Sheet, pen: Pen, cluster: Cluster, regions: Grid, sites: Grid) -> None:
    """Rows of regions, rows of sites, and their buses: VPN and laptops at the left, meshes at the right."""
    network = cluster.network
    mesh = len(cluster.regions) > 1
    tunnels = site_tunnels(cluster)
    words = wires.bus_words(cluster)
    above: dict[str, int] = {}
    """The mesh's lane of each region."""
    beside: dict[str, int] = {}
    """The VPN's lane of each place: below a region, above a site."""
    below: dict[str, int] = {}
    """The lane of each site for tunnels to others."""
    hub = sheet.y + 12
    draws = _region_draws(pen, cluster, regions.full)
    for row in _rows(draws, regions):
        above.update(dict.fromkeys(row, sheet.y + 12))
        sheet.y += 26 if mesh else 0
        _row(sheet, pen, draws, row, regions)
        beside.update(dict.fromkeys(row, sheet.y + 12))
        sheet.y += 22
    middle = sheet.y + 12
    sheet.y += 18
    sheet.band(_premises(cluster))
    band = sheet.y - 10
    draws = _site_draws(pen, cluster, sites.full)
    for row in _rows(draws, sites):
        sheet.y += 22
        beside.update(dict.fromkeys(row, sheet.y - 13))
        _row(sheet, pen, draws, row, sites)
        below.update(dict.fromkeys(row, sheet.y + 10))
        sheet.y += 14 if tunnels else 4
    ends = {end for link in network.links for end in (link.aws_site, link.site)}
    joined = {end for gateway, tunnel in tunnels for end in (gateway.site, tunnel.peer)}
    servers = {server.site for server in cluster.access.vpn.servers}

    def line(bus: Bus, lanes: Mapping[str, int], members: set[str]) -> None:
        stops = [Stop(name, sheet.slots[name], lane) for name, lane in lanes.items() if name in members]
        sheet.wires += wires.bus(bus, stops)

    if servers:
        line(Bus("access", "door", sheet.left - 32, middle, 5, words.access), beside, servers | {CLIENTS})
    if mesh:
        line(Bus("mesh", "peering", sheet.right + 22, hub, 0, words.mesh), above, set(above))
        sheet.captions.append(Text(sheet.right, hub - 22, words.mesh, "small strong halo", "end"))
    if joined:
        hub = min(below[name] for name in joined)
        trunk, words_at = sheet.right + 22, Text(sheet.right, band, words.sites, "small strong halo", "end")
        if all(below[name] == hub for name in joined):
            # One row needs no trunk: the lane ends below its last site.
            trunk = max(sheet.slots[name].middle for name in joined)
            words_at = Text(trunk + 12, hub + 6, words.sites, "small strong halo")
        line(Bus("sites", "tunnel", trunk, hub, 0, words.sites), below, joined)
        sheet.captions.append(words_at)
    if ends:
        line(Bus("vpn", "vpn", sheet.left - 20, middle, -4, words.vpn), beside, ends)
        sheet.captions.append(Text(sheet.left, middle + 4, words.vpn, "small strong halo"))
