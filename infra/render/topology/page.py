"""The picture as files: the layout poured into the templates, style and script sealed by a content policy."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from infra.files import Files
from infra.model import Cluster
from infra.render.templating import TEMPLATES, fill
from infra.render.topology import contents, joins, laptops, places
from infra.render.topology.items import ACTIONS, Item, gone
from infra.render.topology.layout import lay_out

_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What XML 1.0 has no way to write (section 2.2)."""


def draw(cluster: Cluster, changes: Mapping[str, str]) -> Files:
    """See ``infra.render.topology.render``."""
    for name, action in changes.items():
        if action not in ACTIONS:
            raise ValueError(f"{name}: {action!r} is not one of {', '.join(ACTIONS)}")
    told = tell(cluster)
    # What is made, and has no place in the picture (the bucket of etcd's snapshots), is not what goes.
    changes = {name: action for name, action in changes.items() if name in told or action == "destroy"}
    told |= {name: gone(name) for name in sorted(changes) if name not in told}
    picture = lay_out(cluster, told, changes)
    style = _static("colours.css") + _static("diagram.css") + _static("page.css")
    script = _static("page.js")
    title = f"{cluster.name}: topology"
    html = fill(
        "topology/topology.html.j2",
        title=title,
        name=picture.title[0].text,
        about=picture.title[1].text,
        policy=_policy(style, script),
        style=_raw(style),
        script=_raw(script),
        data=_data(told, changes),
        picture=picture,
    )
    svg = fill(
        "topology/topology.svg.j2",
        title=title,
        colours=_raw(_static("colours.css").replace(", body", "")),
        diagram=_raw(_static("diagram.css")),
        picture=picture,
    )
    return {"topology.html": _printable(html), "topology.svg": _printable(svg)}


def tell(cluster: Cluster) -> dict[str, Item]:
    """Everything there is to tell, by element."""
    sections = (places.tell, laptops.tell, joins.tell, contents.tell)
    return {item.id: item for section in sections for item in section(cluster)}


@cache
def _static(name: str) -> str:
    return (TEMPLATES / "topology" / name).read_text(encoding="utf-8")


def _raw(text: str) -> str:
    """Text of ours, which must not be escaped."""
    return Markup(text)  # noqa: S704 (a file of this repository, never a value)


def _data(told: Mapping[str, Item], changes: Mapping[str, str]) -> str:
    """What the script looks through: JSON that can stand in a <script>, without what is empty."""
    rows = [
        {
            key: value
            for key, value in (
                ("id", item.id),
                ("kind", item.kind),
                ("title", item.title),
                ("note", item.note),
                ("facts", item.facts),
                ("blocks", item.blocks),
                ("parent", item.parent),
                ("related", item.related),
                ("via", item.via),
                ("change", changes.get(item.id)),
            )
            if value
        }
        for item in told.values()
    ]
    data = {"actions": ACTIONS, "items": rows}
    return htmlsafe_json_dumps(data, separators=(",", ":"), ensure_ascii=False)


def _policy(style: str, script: str) -> str:
    """Nothing but this very style and this very script; nothing from anywhere."""
    return "; ".join((
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ))  # fmt: skip


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text)
