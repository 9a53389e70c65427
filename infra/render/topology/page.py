"""The output files: Graphviz's SVG with our style, and a page with it and a table of all elements."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from markupsafe import Markup, escape

from infra.files import Files
from infra.model import Cluster
from infra.render.templating import TEMPLATES, fill
from infra.render.topology.elements import Element
from infra.render.topology.graph import ACTIONS, COLOURS, printable

_GROUP: Final = re.compile(r'<g id="[^"]*" (class="[^"]*"[^>]*)>\s*<title>[^<]*</title>')
_LINK: Final = re.compile(r'<g id="a_[^"]*"><a xlink:href="#([^"]*)" xlink:title="([^"]*)"[^>]*>')


def render(cluster: Cluster, known: Mapping[str, Element], changes: Mapping[str, str], svg: str) -> Files:
    """``topology.html`` and ``topology.svg``. See ``infra.render.topology.render``."""
    title = f"{cluster.name}: topology"
    # Browsers show <title> as a tooltip, and screen readers read it; not all browsers show xlink:title.
    drawing = _LINK.sub(_link, _GROUP.sub(r"<g \1>", svg))
    drawing = drawing[drawing.index("<svg ") :].replace("<svg ", '<svg class="topology" ', 1)
    tables: dict[str, list[tuple[Element, str, str]]] = {}
    for element in known.values():
        action = changes.get(element.id, "")
        plan = " ".join(ACTIONS[action]) if action else ""
        tables.setdefault(element.kind, []).append((element, action, plan))
    style, script = _static("page.css") + colours(), _static("page.js")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    html = fill(
        "topology/topology.html.j2",
        title=title,
        drawing=_raw(drawing),
        tables=list(tables.items()),
        policy=f"{policy}; img-src data:; base-uri 'none'; form-action 'none'",
        style=_raw(style),
        script=_raw(script),
    )
    alone = drawing.replace(">", f"><title>{escape(title)}</title><style>{colours()}</style>", 1)
    return {"topology.html": printable(html), "topology.svg": printable(alone)}


def _link(found: re.Match[str]) -> str:
    return f'<g><a href="#{found[1]}" data-id="{escape(unquote(found[1]))}"><title>{found[2]}</title>'


def colours() -> str:
    """The palette as CSS variables; in dark mode the SVG's light colours are replaced."""
    light, dark = ("; ".join(f"--{name}: {pair[side]}" for name, pair in COLOURS.items()) for side in (0, 1))
    rules = (
        f'.topology [{what}="{pair[0]}"] {{ {what}: {pair[1]} }}'
        for pair in COLOURS.values()
        for what in ("fill", "stroke")
    )
    darkened = "\n".join((f":root {{ {dark} }}", *rules))
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{\n{darkened}\n}}\n"


def _static(name: str) -> str:
    return (TEMPLATES / "topology" / name).read_text(encoding="utf-8")


def _raw(text: str) -> str:
    """Text of ours, or from ``dot``, that is escaped already."""
    return Markup(text)  # noqa: S704 (never a value)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
