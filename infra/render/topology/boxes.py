"""Places in brief, for pictures of so many that only totals can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from infra.model import Cluster
from infra.model.machines import NodeGroup, NodePool
from infra.model.places import PhysicalSite, Region
from infra.model.tunnels import SiteGateway
from infra.render.topology import wording
from infra.render.topology.items import machines
from infra.render.topology.marks import text
from infra.render.topology.measure import width
from infra.render.topology.sections import Card, Draw
from infra.render.topology.shapes import Rect, Text

REGION_HEIGHT: Final = 98
SITE_HEIGHT: Final = 88
_PAD: Final = 8
_LOOKS: Final = ("mono-small", "small ink", "small ink", "small dim")


def region_lines(
    cluster: Cluster, groups: dict[str, list[tuple[NodePool, NodeGroup]]]
) -> dict[str, tuple[tuple[str, str], ...]]:
    """What each region's box says below its name: pairs of a left and a right text."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    standing = Counter((machine.site, machine.role) for machine in machines(cluster))
    stores = Counter(
        [(each.site, "EFS") for each in cluster.storage.efs]
        + [(each.site, "S3") for each in cluster.storage.s3]
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
            (str(region.vpc), ""),
            (wording.count(len(here), "pool"), f"≤ {wording.money(full)}/h" if full else ""),
            (f"{nodes} nodes", f"{len(region.zones)} zones"),
            (" · ".join(small), ""),
        )
    return found


def region_drawing(region: Region, lines: Sequence[tuple[str, str]]) -> Draw:
    """A region in brief."""

    def draw(x: int, y: int, w: int) -> Card:
        left, right, room = x + _PAD, x + w - _PAD, w - 2 * _PAD
        texts = [
            Text(left + 8, y + 20, str(region.order + 1), "tag strong order", "middle"),
            text(left + 21, y + 21, region.name, "body strong", room - 21),
        ]
        for index, ((one, other), look) in enumerate(zip(lines, _LOOKS, strict=True)):
            base = y + 38 + index * 17
            texts.append(text(left, base, one, look, room - width(other, "small") - 6))
            texts.append(Text(right, base, other, "small dim", "end"))
        order = Rect(left, y + 9, 16, 16, "order", 8)
        return Card("region", (order,), tuple(texts), (), REGION_HEIGHT)

    return draw


def site_drawing(site: PhysicalSite, gateways: Mapping[str, SiteGateway]) -> Draw:
    """A physical site in brief."""
    cards = sum(node.gpus.count for node in site.nodes if node.gpus)
    gpus = wording.count(cards, "GPU") if cards else ""
    gateway = gateways.get(site.name)
    tunnels = wording.count(len(gateway.tunnels), "tunnel") if gateway else ""
    facts = [fact for fact in (wording.count(len(site.nodes), "node"), gpus, tunnels) if fact]
    return _small("site", site.name, str(site.lan), *facts)


def laptops_drawing(cluster: Cluster) -> Draw:
    """Laptops in brief."""
    doors = wording.count(len(cluster.access.vpn.servers), "VPN server")
    users = wording.count(sum(user.vpn for user in cluster.access.users), "user")
    number = len(cluster.access.vpn.groups)
    groups = (wording.count(number, "group"),) if number else ()
    return _small("laptops", "Laptops", str(cluster.network.clients), doors, users, *groups)


def _small(kind: str, name: str, block: str, *facts: str) -> Draw:
    def draw(x: int, y: int, w: int) -> Card:
        left, room = x + _PAD, w - 2 * _PAD
        texts = (
            text(left, y + 20, name, "body strong", room),
            text(left, y + 36, block, "mono-tiny", room),
            *(text(left, y + 52 + 14 * index, fact, "small dim", room) for index, fact in enumerate(facts)),
        )
        return Card(kind, (), texts, (), SITE_HEIGHT)

    return draw
