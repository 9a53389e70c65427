"""The diagram as a Graphviz graph: a box for each place, a line for each connection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from infra.model import Cluster
from infra.render.topology.elements import CLIENTS, GONE, Element, count

if TYPE_CHECKING:
    from graphviz import Graph

ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "add": ("+", "added"),
    "change": ("~", "changed in place"),
    "replace": ("\N{PLUS-MINUS SIGN}", "replaced"),
    "destroy": ("\N{MINUS SIGN}", "destroyed"),
}
"""What a plan may do to an element: its sign, and its label."""

COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "paper": ("#f7f7f4", "#101418"),
    "card": ("#ffffff", "#181d23"),
    "ink": ("#1b2027", "#e7ebef"),
    "soft": ("#57606b", "#a2acb7"),
    "edge": ("#c4c9d0", "#3b444e"),
    "regions": ("#dfe6f5", "#26324b"),
    "sites": ("#f3e7d8", "#3b3020"),
    "plain": ("#e8ebee", "#2a323a"),
    "vpn": ("#0b6b68", "#57c0b8"),
    "peering": ("#3f5796", "#93abec"),
    "access": ("#8a5700", "#e2b45f"),
    "add": ("#1a7237", "#56c271"),
    "change": ("#8a5b00", "#e0ad46"),
    "replace": ("#7a3fc4", "#c19bf5"),
    "destroy": ("#c01f2e", "#ff8a86"),
}
"""Name → light colour, dark colour. The graph has the light ones; the style sheet replaces them in dark
mode."""

LINES: Final[Mapping[str, tuple[str, str]]] = {
    "VPN connection": ("vpn", "bold"),
    "site tunnel": ("vpn", "solid"),
    "VPC peering": ("peering", "solid"),
    "transit gateway peering": ("peering", "dashed"),
    "VPN access": ("access", "dotted,bold"),
}
"""Kind of connection → its colour and style."""

_SAMPLES: Final = {"bold": "━━━", "solid": "───", "dashed": "╌╌╌", "dotted,bold": "┄┄┄"}

_SECTIONS: Final = {
    "node pool": "Node pools", "master": "Machines", "SSH node": "Machines", "VPN server": "Machines",
    "physical node": "Nodes", "EFS": "Storage", "S3 bucket": "Storage", "NFS export": "Storage",
    "group of users": "What groups reach",
}  # fmt: skip
"""Kind → the section of a box that lists it."""

_MOST_PLACES: Final = 8
_MOST_LINES: Final = 40
"""With more places or connections, places are drawn without their contents, and connections are only
counted."""

_ACROSS: Final = 10
"""Places per row in that case."""

_FONT: Final = "Helvetica,Arial,Liberation Sans,sans-serif"
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML 1.0 cannot contain (section 2.2)."""


def printable(text: str) -> str:
    """The text without characters that XML cannot contain."""
    return _UNPRINTABLE.sub("\ufffd", text)


def graph(cluster: Cluster, known: Mapping[str, Element], changes: Mapping[str, str]) -> str:
    """The DOT text. Each element is a link to ``#<its id>`` and has its facts as a tooltip."""
    import graphviz

    lines = [element for element in known.values() if element.kind in LINES]
    sites, regions = [site.name for site in cluster.sites], [region.name for region in cluster.regions]
    brief = len(sites) + len(regions) > _MOST_PLACES or len(lines) > _MOST_LINES
    drawn = _Drawing(known, changes)
    text = {"fontname": _FONT, "fontsize": "11", "fontcolor": _light("ink")}
    dot = graphviz.Graph(
        graph_attr=text | {"bgcolor": _light("paper"), "label": drawn.heading(cluster, lines)}
        | {"labeljust": "l", "labelloc": "t", "nodesep": "0.6", "pad": "0.3", "ranksep": "1.2"},
        node_attr=text | {"shape": "plain"},
        edge_attr=text,
    )  # fmt: skip
    gone = drawn.section("No longer in the spec", (each for each in known.values() if each.kind == GONE))
    top = {CLIENTS: drawn.card(CLIENTS, "plain", "access")} | ({GONE: _card(gone)} if gone else {})
    for rank, kind, names, cards in (("min", "sites", sites, top), ("max", "regions", regions, {})):
        with dot.subgraph(graph_attr={"rank": rank}) as row:
            for name in () if brief else names:
                cards[name] = drawn.card(name, kind, name)
            for name, label in (cards | ({kind: drawn.grid(kind, names)} if brief and names else {})).items():
                row.node(name, label)
    if brief:
        drawn.bundles(dot, lines, dict.fromkeys(sites, "sites") | dict.fromkeys(regions, "regions"))
    order = [CLIENTS, *sites, *regions]
    for line in () if brief else lines:
        sign = " ".join(ACTIONS[changes[line.id]]) if line.id in changes else ""
        ends = sorted(line.ends, key=order.index)
        dot.edge(
            *ends,
            f"   {sign}   " if sign else "",
            **drawn.link(line.id),
            **_pen(line.kind, changes.get(line.id, "")),
        )
    return printable(dot.source)


class _Drawing:
    """Places as HTML-like labels (https://graphviz.org/doc/info/shapes.html#html)."""

    def __init__(self, known: Mapping[str, Element], changes: Mapping[str, str]) -> None:
        self.known, self.changes = known, changes
        self.inside: dict[str, list[Element]] = {}
        for element in known.values():
            self.inside.setdefault(element.id.partition("/")[0], []).append(element)

    def link(self, name: str) -> dict[str, str]:
        """The attributes that link a part of the diagram to an element."""
        plan = f"\nto be {ACTIONS[self.changes[name]][1]}" if name in self.changes else ""
        # Graphviz escapes tooltips but not links.
        link = quote(name, errors="replace")
        return {"href": f"#{link}", "id": link, "tooltip": _safe(self.known[name].summary + plan)}

    def cell(self, name: str, *lines: tuple[str, int], colour: str = "", padding: int = 3) -> str:
        """A cell for an element, with lines of text and their sizes; a changed element has its colour and
        sign."""
        action = self.changes.get(name)
        sign = f"{ACTIONS[action][0]}\N{NO-BREAK SPACE}" if action else ""
        ink = "card" if action else "ink"
        text = "<BR ALIGN='LEFT'/>".join(
            _text((sign if line == 0 else "") + words, ink, size, bold=size > 11)
            for line, (words, size) in enumerate(lines)
        )
        end = "<BR ALIGN='LEFT'/>" if len(lines) > 1 else ""
        background = {"bgcolor": _light(action or colour)} if action or colour else {}
        return _cell(text + end, **self.link(name), **background, cellpadding=padding)

    def tally(self, elements: Iterable[Element]) -> tuple[str, str]:
        """``+2 ~1``: how many of the elements change, and the most severe action."""
        found = Counter(self.changes[each.id] for each in elements if each.id in self.changes)
        there = [action for action in ACTIONS if found[action]]
        return " ".join(f"{ACTIONS[action][0]}{found[action]}" for action in there), (["", *there])[-1]

    def card(self, name: str, colour: str, folder: str) -> str:
        """The box of a place, or of laptops, with its contents."""
        element, inside = self.known[name], self.inside[folder]
        lines = ((element.name, 16), (element.details[0], 11), (element.address, 11))
        sections = [self.subnets([each for each in inside if each.kind == "subnet"])]
        for title, found in groupby(inside, lambda each: _SECTIONS.get(each.kind, "")):
            sections += [self.section(title, found)] if title else []
        return _card(_row(self.cell(name, *lines, colour=colour, padding=6)), *sections)

    def section(self, title: str, elements: Iterable[Element]) -> str:
        """A row for each element, with its facts in columns."""
        rows = [
            _row(self.cell(each.id, (each.name, 11)), *(_cell(_text(words, "soft")) for words in each.beside))
            for each in elements
        ]
        return _section([title], rows, rows[0].count("<TD") if rows else 0)

    def subnets(self, elements: Iterable[Element]) -> str:
        """A row for each zone, a column for each tier."""
        blocks = {each.details[:2]: self.cell(each.id, (each.address, 11)) for each in elements}
        tiers, zones = (list(dict.fromkeys(key[part] for key in blocks)) for part in (0, 1))
        rows = [
            _row(_cell(_text(zone, "soft")), *(blocks.get((tier, zone), _cell("")) for tier in tiers))
            for zone in zones
        ]
        return _section(["Subnets", *tiers], rows, 1)

    def grid(self, kind: str, names: Sequence[str]) -> str:
        """Many places without their contents, with the number of changes in each."""
        cells = []
        for name in names:
            tally, action = self.tally(self.inside[name])
            ink, there = "card" if action else "ink", self.known[name]
            lines = [
                _text(f"{name}   {tally}", ink, bold=True),
                *(_text(line, ink) for line in (there.address, *there.beside)),
            ]
            text = "".join(f"{line}<BR ALIGN='LEFT'/>" for line in lines)
            cells.append(_cell(text, **self.link(name), bgcolor=_light(action or kind), cellpadding=6))
        rows = [_row(*cells[start : start + _ACROSS]) for start in range(0, len(cells), _ACROSS)]
        head = f"{len(names)} {'AWS regions' if kind == 'regions' else 'physical sites'}"
        return _card(_row(_cell(_text(head, size=16, bold=True), colspan=_ACROSS)), *rows)

    def bundles(self, dot: Graph, lines: Iterable[Element], group: Mapping[str, str]) -> None:
        """One edge for all connections of a kind between two groups of places."""
        found: dict[tuple[str, ...], list[Element]] = {}
        for line in lines:
            found.setdefault((*(group.get(end, end) for end in line.ends), line.kind), []).append(line)
        for (tail, head, kind), bundle in found.items():
            tally, action = self.tally(bundle)
            dot.edge(tail, head, f"  {count(len(bundle), kind)}  {tally}  ", **_pen(kind, action))

    def heading(self, cluster: Cluster, lines: Iterable[Element]) -> str:
        """The cluster's name, its address plan, the legend of lines, and the plan's changes."""
        network, kinds, changes = (
            cluster.network,
            {line.kind for line in lines},
            Counter(self.changes.values()),
        )
        about = f"{cluster.domain}   supernet {network.supernet}"
        if cluster.control_plane:
            about += f"   Kubernetes {cluster.kubernetes.version}"
            about += f"   pods {network.pods}   services {network.services}"
        legend = [
            _cell(f"{_text(_SAMPLES[style], colour, bold=True)}  {kind}")
            for kind, (colour, style) in LINES.items() if kind in kinds
        ] + [
            _cell(_text(f"{sign} {changes[action]} {word}", "card", bold=True), bgcolor=_light(action))
            for action, (sign, word) in ACTIONS.items() if changes[action]
        ]  # fmt: skip
        name = _row(_cell(_text(cluster.name, size=22, bold=True)))
        key = _row(_cell(_table(_row(*legend), spacing=6))) if legend else ""
        return f"<{_table(name, _row(_cell(_text(about, 'soft'))), key)}>"


def _light(name: str) -> str:
    return COLOURS[name][0]


def _pen(kind: str, action: str) -> dict[str, str]:
    colour = _light(action or LINES[kind][0])
    return {"color": colour, "fontcolor": colour, "style": LINES[kind][1]}


def _card(*rows: str) -> str:
    look = f' BGCOLOR="{_light("card")}" COLOR="{_light("edge")}" STYLE="ROUNDED"'
    return f"<{_table(*rows, border=1, spacing=5, look=look)}>"


def _section(title: Sequence[str], rows: Sequence[str], columns: int) -> str:
    """A section of a box: a row of headings and the rows; empty without rows."""
    heads = [_cell(_text(each.upper(), "soft", 9, bold=True), colspan=columns) for each in title]
    return _row(_cell(_table(_row(*heads), *rows, spacing=1))) if rows else ""


def _table(*rows: str, border: int = 0, spacing: int = 0, look: str = "") -> str:
    start = f'<TABLE BORDER="{border}" CELLBORDER="0" CELLSPACING="{spacing}" CELLPADDING="3"{look}>'
    return f"{start}{''.join(rows)}</TABLE>"


def _row(*cells: str) -> str:
    return f"<TR>{''.join(cells)}</TR>"


def _cell(words: str, **attributes: object) -> str:
    said = "".join(f' {key.upper()}="{value}"' for key, value in attributes.items())
    return f'<TD ALIGN="LEFT" BALIGN="LEFT"{said}>{words or " "}</TD>'


def _text(text: str, colour: str = "ink", size: int = 11, *, bold: bool = False) -> str:
    words = f"<B>{_safe(text)}</B>" if bold and text else _safe(text)
    return f'<FONT COLOR="{_light(colour)}" POINT-SIZE="{size}">{words}</FONT>' if text else ""


def _safe(text: str) -> str:
    """The text with Graphviz's entities and escapes (such as the node's name) escaped."""
    return escape(text).replace("\\", "\\\\").replace("\n", "&#10;")
