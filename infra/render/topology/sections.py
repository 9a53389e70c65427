"""A card, written section by section from its top-left corner down.

It tells how high it became; its frame comes last, when the height of its row is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from infra.model.machines import NodeGroup, NodePool
from infra.model.places import PhysicalNode, PhysicalSite, Region, Tier
from infra.model.remote import Vpn
from infra.render.topology import wording
from infra.render.topology.items import door_id, group_id
from infra.render.topology.marks import Pen, text
from infra.render.topology.measure import width
from infra.render.topology.shapes import Mark, Rect, Text

PAD: Final = 16
ROW: Final = 23
HEAD: Final = 60
_CAPTION: Final = 21
_GAP: Final = 9
_MOST_POOLS: Final = 10
_MOST_CELLS: Final = 12
_MOST_NODES: Final = 24
_NODE: Final = 38
_MOST_PIPS: Final = 8
_TIERS: Final[tuple[Tier, ...]] = ("public", "private", "pods")
_NODE_TAGS: Final = {"site-gateway": "GW", "access-gateway": "VPN", "nfs-server": "NFS"}


@dataclass(frozen=True, slots=True)
class Card:
    """A place, drawn but for its frame."""

    kind: str
    rects: tuple[Rect, ...]
    texts: tuple[Text, ...]
    """What belongs to the place itself."""
    marks: tuple[Mark, ...]
    """What is in it."""
    height: int


Draw: TypeAlias = Callable[[int, int, int], Card]
"""Draws a card at x and y, so wide."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A small thing in a card's grid: a tag, a name, a fact at the right."""

    id: str
    tag: str
    name: str
    fact: str


class Writer:
    """Draws down a card, section by section."""

    def __init__(self, pen: Pen, x: int, y: int, w: int) -> None:
        self.pen = pen
        self.x = x
        self.y = y
        self.w = w
        self.rects: list[Rect] = []
        self.texts: list[Text] = []
        self.marks: list[Mark] = []

    @property
    def left(self) -> int:
        """Where text begins."""
        return self.x + PAD

    @property
    def right(self) -> int:
        """Where text ends."""
        return self.x + self.w - PAD

    def head(self, name: str, block: str, note: str, fact: str, order: int | None = None) -> None:
        """The card's title: a name and its block, a note and a fact below."""
        rects, texts, left = [], [], self.left
        if order is not None:
            rects.append(Rect(left, self.y + 13, 20, 20, "order", 10))
            texts.append(Text(left + 10, self.y + 27, str(order + 1), "small strong order", "middle"))
            left += 28
        space = self.right - left
        used = width(block, "mono-big") + 12
        texts += [
            text(left, self.y + 28, name, "big", space - used),
            Text(self.right, self.y + 28, block, "mono-big", "end"),
            text(self.left, self.y + 48, note, "dim", self.w - 2 * PAD - width(fact, "dim") - 12),
            Text(self.right, self.y + 48, fact, "dim", "end"),
        ]
        self.rects += rects
        self.texts += texts
        self.y += HEAD

    def caption(self, words: str, columns: Sequence[tuple[int, str]] = ()) -> None:
        """The name of a section over a hairline, and of its columns: (right edge, name)."""
        self.y += _GAP
        line = Rect(self.left, self.y - 4, self.w - 2 * PAD, 1, "hairline")
        texts = [Text(self.left, self.y + 12, words.upper(), "cap")]
        texts += [Text(edge, self.y + 12, name, "small dim", "end") for edge, name in columns]
        self.rects.append(line)
        self.texts += texts
        self.y += _CAPTION

    def zones(self, region: Region) -> None:
        """A table of zones by tier; a small NAT where a gateway stands."""
        tiers = [tier for tier in _TIERS if any(subnet.tier == tier for subnet in region.subnets)]
        by_place = {(subnet.zone, subnet.tier): subnet for subnet in region.subnets}
        first = 136
        each = (self.w - 2 * PAD - first) // max(len(tiers), 1)
        self.caption("Zones")
        top = self.y - _CAPTION + 12
        columns = [
            Text(self.left + first + each * index + 8, top, tier.upper(), "cap")
            for index, tier in enumerate(tiers)
        ]
        self.texts += columns
        gateways = set(region.nat.values())
        for zone in region.zones:
            texts = [text(self.left, self.y + 15, zone, "body", first - 36)]
            if zone in gateways:
                texts.append(Text(self.left + first - 10, self.y + 15, "NAT", "tag", "end"))
            self.texts += texts
            for index, tier in enumerate(tiers):
                subnet = by_place.get((zone, tier))
                if subnet is None:
                    continue
                left = self.left + first + each * index
                self.marks.append(
                    self.pen.mark(
                        f"{region.name}/subnets/{subnet.name}",
                        f"subnet {tier}",
                        Rect(left, self.y, each - 4, ROW - 2, "cell", 3),
                        [text(left + 8, self.y + 14, str(subnet.block), "mono", each - 16)],
                    )
                )
            self.y += ROW

    def pools(self, region: Region, groups: Sequence[tuple[NodePool, NodeGroup]]) -> None:
        """A table of node pools: type, cards, market, how many, price."""
        if not groups:
            return
        right = self.right
        market, count, price = right - 136, right - 78, right
        types, gpus = self.left + 102, self.left + 216
        self.caption("Node pools", [(market, "market"), (count, "nodes"), (price, "$ an hour")])
        shown = groups if len(groups) <= _MOST_POOLS else groups[: _MOST_POOLS - 1]
        for pool, group in shown:
            base = self.y + 15
            first, others = pool.instance_types[0].name, len(pool.instance_types) - 1
            words = f"{first} +{others}" if others else first
            bought = wording.short_market(pool.market)
            texts = [
                text(self.left, base, pool.name, "body strong", 96),
                text(types, base, words, "dim ink", 108 if pool.gpus else 220),
                Text(market, base, bought, "dim", "end"),
                Text(count, base, wording.span(group.min, group.max), "body", "end"),
                Text(price, base, wording.money(wording.price(pool, group)).lstrip("$"), "mono", "end"),
            ]
            if pool.gpus:
                room = market - gpus - width(bought, "dim") - 10
                texts.append(text(gpus, base, wording.card(pool.gpus), "dim", room))
            self._row(f"{region.name}/{pool.name}", "pool", texts)
        self._rest(len(groups) - len(shown), "more pools")

    def _row(self, name: str, look: str, texts: Sequence[Text], height: int = ROW) -> None:
        rect = Rect(self.left - 8, self.y, self.w - 2 * PAD + 16, height, "row", 3)
        self.marks.append(self.pen.mark(name, look, rect, texts))
        self.y += height

    def _rest(self, number: int, words: str) -> None:
        if number > 0:
            self.texts.append(Text(self.left, self.y + 15, f"and {number:,} {words}", "dim"))
            self.y += ROW

    def cells(self, caption: str, look: str, found: Sequence[Cell], columns: int) -> None:
        """A grid of small things, some abreast."""
        if not found:
            return
        self.caption(caption)
        shown = found[:_MOST_CELLS]
        each = (self.w - 2 * PAD + 16) // columns
        for index, cell in enumerate(shown):
            column, top = index % columns, self.y + index // columns * ROW
            left = self.left - 8 + column * each
            edge = left + each - 12
            tag = round(width(cell.tag, "tag")) + 10
            fact = min(width(cell.fact, "small"), each * 0.45)
            texts = (
                Text(left + 8 + tag // 2, top + 15, cell.tag, "tag", "middle"),
                text(left + tag + 15, top + 15, cell.name, "body", each - tag - fact - 38),
                text(edge, top + 15, cell.fact, "small dim", fact, "end"),
            )
            frame = Rect(left + 8, top + 4, tag, 15, "tagbox", 3)
            rect = Rect(left, top, each, ROW, "row", 3)
            self.marks.append(self.pen.mark(cell.id, look, rect, texts, (frame,)))
        self.y += -(-len(shown) // columns) * ROW
        self._rest(len(found) - len(shown), "more")

    def nodes(self, site: PhysicalSite) -> None:
        """Racks: a chip a machine, with a pip a card."""
        racks: dict[str, list[PhysicalNode]] = {}
        for node in site.nodes:
            racks.setdefault(node.rack or "", []).append(node)
        for rack, inside in sorted(racks.items()):
            cards: Counter[str] = Counter()
            for node in inside:
                if node.gpus:
                    cards[wording.card_name(node.gpus)] += node.gpus.count
            gpus = ", ".join(f"{number} {wording.TIMES} {model}" for model, number in sorted(cards.items()))
            facts = " · ".join(part for part in (wording.count(len(inside), "node"), gpus) if part)
            self.caption(_rack_caption(rack), [(self.right, facts)])
            self._chips(site, sorted(inside, key=_plain_last))

    def _chips(self, site: PhysicalSite, inside: Sequence[PhysicalNode]) -> None:
        widest = max(width(node.name, "body") + _beside(node) for node in inside)
        columns = max((self.w - 2 * PAD + 6) // max(round(widest), 96), 2)
        each = (self.w - 2 * PAD + 6) // columns
        shown = inside[:_MOST_NODES]
        for index, node in enumerate(shown):
            left = self.left + index % columns * each
            top = self.y + index // columns * (_NODE + 4)
            texts = [
                text(left + 8, top + 15, node.name, "body", each - _beside(node)),
                Text(left + 8, top + 31, str(node.address), "mono-small dim"),
                Text(left + each - 14, top + 15, _tag(node), "tag", "end"),
            ]
            pips = [
                Rect(left + each - 18 - number % 4 * 6, top + 9 + number // 4 * 6, 4, 4, "pip", 1)
                for number in range(min(node.gpus.count if node.gpus else 0, _MOST_PIPS))
            ]
            rect = Rect(left, top, each - 6, _NODE, "cell", 4)
            self.marks.append(self.pen.mark(f"{site.name}/nodes/{node.name}", "node", rect, texts, pips))
        self.y += -(-len(shown) // columns) * (_NODE + 4)
        self._rest(len(inside) - len(shown), "more nodes")

    def doors(self, vpn: Vpn) -> None:
        """A table of VPN servers: name, ports, and the blocks that laptops get from them."""
        if not vpn.servers:
            self.caption("No VPN server")
            return
        self.caption("Come in at", [(self.right, "any, at random" if vpn.random else "in this order")])
        middle = self.left + 150
        for server in vpn.servers:
            where = text(self.left, self.y + 15, server.site, "body strong", 140)
            host = text(middle, self.y + 15, server.host or server.node, "dim", self.right - middle)
            texts = [where, host]
            # Room for two. WireGuard's addresses are the same everywhere: the card's head names the kinds.
            for index, each in enumerate(server.listeners[:2]):
                x = middle + index * (self.right - middle) // 2
                texts.append(Text(x, self.y + 31, f"{each.protocol.upper()} {each.port}", "small dim"))
                texts.append(Text(x + 56, self.y + 31, str(each.block), "mono-small dim"))
            self._row(door_id(server.site), "door", texts, _NODE)

    def groups(self, vpn: Vpn) -> None:
        """A table of groups: what they may reach, and how many people they have."""
        if not vpn.groups:
            return
        self.caption("Groups", [(self.right, "may reach")])
        shown = vpn.groups[:_MOST_CELLS]
        for group in shown:
            people = wording.count(sum(group.name in user.groups for user in vpn.users), "user")
            name = text(self.left, self.y + 15, group.name, "body strong", 140)
            number = Text(self.left + 150, self.y + 15, people, "dim")
            may = text(
                self.right, self.y + 15, wording.may_reach(group), "dim ink", self.w - 2 * PAD - 240, "end"
            )
            self._row(group_id(group.name), "group", [name, number, may])
        self._rest(len(vpn.groups) - len(shown), "more groups")

    def done(self, kind: str, top: int) -> Card:
        """The card, with room below its last line."""
        return Card(kind, tuple(self.rects), tuple(self.texts), tuple(self.marks), self.y - top + 10)


def _rack_caption(rack: str) -> str:
    if not rack:
        return "Nodes"
    return rack if rack.lower().startswith("rack") else f"Rack {rack}"


def _tag(node: PhysicalNode) -> str:
    """What a node is for, where it is for more than work and has no cards to show there."""
    return "" if node.gpus else next((_NODE_TAGS[role] for role in node.roles if role in _NODE_TAGS), "")


def _beside(node: PhysicalNode) -> int:
    """The room that a chip needs beside the node's name."""
    return 46 if node.gpus else 26 + round(width(_tag(node), "tag"))


def _plain_last(node: PhysicalNode) -> tuple[bool, str]:
    return not any(role in _NODE_TAGS for role in node.roles), node.name
