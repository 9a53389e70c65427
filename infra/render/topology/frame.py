"""What stands around the places: the title, the address plan, what is gone, the legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.model import Cluster
from infra.render.topology import wording
from infra.render.topology.items import (
    ACTIONS,
    CLIENTS,
    LINK_LOCAL,
    PODS,
    SERVICES,
    SUPERNET,
    TUNNELS,
    site_tunnels,
)
from infra.render.topology.marks import Pen, text
from infra.render.topology.measure import width
from infra.render.topology.sections import ROW
from infra.render.topology.shapes import Badge, Mark, Rect, Sign, Text, Wire

TITLE: Final = 76
STRIP: Final = 58
KEY: Final = 36
"""The heights of the title, the address plan and the legend."""


def title(cluster: Cluster, left: int, room: int) -> tuple[Text, Text]:
    """The cluster's name, and a line about it."""
    regions, sites = len(cluster.regions), len(cluster.sites)
    about = [cluster.domain, f"Kubernetes {cluster.kubernetes.version}"]
    if regions:
        about.append(wording.count(regions, "region"))
    if sites:
        about.append(wording.count(sites, "physical site"))
    if regions > 1:
        about.append(f"regions joined by {wording.peering(cluster.network)}")
    if site_tunnels(cluster):
        about.append("sites joined by IPsec")
    names = [cluster.name] if cluster.name == cluster.environment else [cluster.name, cluster.environment]
    return (
        text(left, 40, " · ".join(names), "title", room),
        text(left, 60, " · ".join(about), "dim", room),
    )


def address_plan(pen: Pen, cluster: Cluster, left: int, y: int, inner: int) -> list[Mark]:
    """A cell for each range that is not a place."""
    network = cluster.network
    cells = [
        (SUPERNET, "Supernet", str(network.supernet), wording.size(network.supernet)),
        (PODS, "Pods", str(network.pods), f"/{network.pods_node_prefix} a node"),
        (SERVICES, "Services", str(network.services), wording.size(network.services)),
        (CLIENTS, "Laptops", str(network.clients), wording.size(network.clients)),
    ]
    to_aws = sum(len(link.tunnels) for link in network.links)
    between = len(site_tunnels(cluster))
    if to_aws or between:
        words = f"{to_aws + between:,} {wording.TIMES} /30"
        words += f": {to_aws:,} to AWS, {between:,} between sites" if between else ", two a connection"
        cells.append((TUNNELS, "Tunnels", str(LINK_LOCAL), words))
    each = inner // len(cells)
    marks = []
    for index, (name, caption, block, note) in enumerate(cells):
        x = left + index * each
        rect = Rect(x - 10, y, each - 6, STRIP - 8, "row", 4)
        marks.append(pen.mark(name, "range", rect, _cell(x, y, caption, block, note), tab=0))
    return marks


def _cell(x: int, y: int, caption: str, block: str, note: str) -> tuple[Text, ...]:
    return (
        Text(x, y + 13, caption.upper(), "cap"),
        Text(x, y + 31, block, "mono-big"),
        Text(x, y + 46, note, "small dim"),
    )


def lost(pen: Pen, names: Sequence[str], left: int, y: int, inner: int) -> tuple[list[Mark], int]:
    """Elements that are not in the cluster any more, in lines of chips, and how high they stand."""
    marks, x, top = [], left, y
    for name in names:
        wide = min(round(width(name, "body")) + 36, inner)
        if x > left and x + wide > left + inner:
            x, y = left, y + ROW + 6
        words = text(x + 18, y + 16, name, "body", inner - 36)
        marks.append(pen.mark(name, "gone", Rect(x, y, wide, ROW, "cell", 4), [words], tab=0))
        x += wide + 14
    return marks, y + ROW - top


def samples(cluster: Cluster, left: int, y: int) -> tuple[Wire, ...]:
    """One of each kind of line, with its meaning."""
    network = cluster.network
    static = {link.routing == "static" for link in network.links}
    between = {tunnel.routing == "static" for _, tunnel in site_tunnels(cluster)}
    lines = [
        ("vpn", "VPN connection, two tunnels", False in static),
        ("vpn static", "VPN connection, static routes", True in static),
        ("tunnel", "IPsec tunnel between sites", False in between),
        ("tunnel static", "tunnel between sites, static routes", True in between),
        ("peering", wording.peering(network), bool(network.peerings)),
        ("door", f"laptops, {wording.kinds(cluster.access.vpn)}", bool(cluster.access.vpn.servers)),
    ]
    found, x = [], left
    for look, words, there in lines:
        if there:
            found.append(Wire("", look, f"M{x} {y}h26", (Text(x + 34, y + 4, words, "small dim"),)))
            x += 34 + round(width(words, "small")) + 26
    return tuple(found)


def signs(pen: Pen, right: int, y: int) -> tuple[Sign, ...]:
    """What the badges mean and how many there are, from the right; nothing without a plan."""
    found, x = [], right
    for action, (sign, word) in reversed(tuple(ACTIONS.items()) if pen.changes else ()):
        number = sum(each == action for each in pen.changes.values())
        words = f"{number:,} {word}"
        x -= round(width(words, "small"))
        badge = Badge(x - 14, y, 16, action, sign)
        found.append(Sign((badge,), (Text(x, y + 4, words, "small ink"),)))
        x -= 48
    return tuple(found)
