"""Places in brief, for pictures of so many that only totals can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from infra.model import Cluster
from infra.model.machines import NodeGroup, NodePool
from infra.model.places import PhysicalSite, Region
from infra.render.topology import wording
from infra.render.topology.cards import Card, Draw
from infra.render.topology.items import machines
from infra.render.topology.marks import text
from infra.render.topology.measure import width
from infra.render.topology.shapes import Rect, Text

REGION_HEIGHT: Final = 90
SITE_HEIGHT: Final = 62
_PAD: Final = 11


def region_lines(
    cluster: Cluster, groups: dict[str, list[tuple[NodePool, NodeGroup]]]
) -> dict[str, tuple[tuple[str, str], ...]]:
    """What each region's box says below its name: pairs of a left and a right text."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    standing = Counter((machine.region, machine.role) for machine in machines(cluster))
    stores = Counter(
        [(each.region, "EFS") for each in cluster.storage.efs]
        + [(each.region, "S3") for each in cluster.storage.s3]
    )
    for region in cluster.regions:
        here = groups[region.name]
        nodes = wording.span(sum(group.min for _, group in here), sum(group.max for _, group in here))
        full = wording.total(wording.full_price(pool, group) for pool, group in here)
        small = [
            f"{number} {word}" if number > 1 else word
            for word, number in (
                ("masters", standing[region.name, "control-plane"]),
                ("VPN", standing[region.name, "access-gateway"]),
                ("SSH", standing[region.name, "ssh-node"]),
                ("EFS", stores[region.name, "EFS"]),
                ("S3", stores[region.name, "S3"]),
            )
            if number
        ]
        found[region.name] = (
            (wording.count(len(here), "pool"), f"{nodes} nodes"),
            (f"{len(region.zones)} zones", f"≤ {wording.money(full)}/h" if full else ""),
            (" · ".join(small), f"AS {region.asn}"),
        )
    return found


def region_drawing(region: Region, lines: Sequence[tuple[str, str]]) -> Draw:
    """A region in brief."""
    block = str(region.vpc)

    def draw(x: int, y: int, w: int) -> Card:
        left, right, room = x + _PAD, x + w - _PAD, w - 2 * _PAD
        texts = [
            Text(left + 9, y + 21, str(region.order + 1), "tag strong order", "middle"),
            text(left + 25, y + 22, region.name, "name strong", room - 30 - width(block, "mono")),
            Text(right, y + 22, block, "mono", "end"),
        ]
        for index, (one, other) in enumerate(lines):
            base = y + 45 + index * 17
            texts.append(text(left, base, one, "small ink", room - width(other, "small") - 8))
            texts.append(Text(right, base, other, "small dim", "end"))
        order = Rect(left, y + 9, 18, 18, "order", 9)
        return Card("region", (order,), tuple(texts), (), REGION_HEIGHT)

    return draw


def site_drawing(site: PhysicalSite) -> Draw:
    """A physical site in brief."""
    cards = sum(node.gpus.count for node in site.nodes if node.gpus)
    facts = [wording.count(len(site.nodes), "node")] + ([f"{cards:,} GPUs"] if cards else [])
    return _small("site", site.name, str(site.lan), " · ".join(facts))


def laptops_drawing(cluster: Cluster) -> Draw:
    """Laptops in brief."""
    doors = wording.count(len(cluster.access.vpn.servers), "VPN server")
    return _small("laptops", "Laptops", str(cluster.network.clients), doors)


def _small(kind: str, name: str, block: str, facts: str) -> Draw:
    def draw(x: int, y: int, w: int) -> Card:
        left, room = x + _PAD, w - 2 * _PAD
        texts = (
            text(left, y + 20, name, "body strong", room),
            text(left, y + 36, block, "mono-small", room),
            text(left, y + 52, facts, "small dim", room),
        )
        return Card(kind, (), texts, (), SITE_HEIGHT)

    return draw
