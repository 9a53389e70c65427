"""A plan's changes as marks on the topology diagram. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from infra.drive.plan import Change
from infra.model import Cluster

_STRENGTH: Final = ("add", "change", "replace", "destroy")
_MARK: Final[Mapping[str, str]] = {
    "create": "add",
    "update": "change",
    "replace": "replace",
    "delete": "destroy",
}
_KEY: Final = re.compile(r'\["([^"]*)"\]')


def marks(changes: Iterable[Change], cluster: Cluster) -> dict[str, str]:
    """Element of ``infra.render.topology`` → its mark: the most severe change of it."""
    peerings = {peering.key: peering.name for peering in cluster.network.peerings}
    found: dict[str, str] = {}
    for change in changes:
        mark = _MARK.get(change.action)
        if mark is None:
            continue
        for element in _elements(change, peerings):
            found[element] = max(mark, found.get(element, mark), key=_STRENGTH.index)
    return dict(sorted(found.items()))


def _elements(change: Change, peerings: Mapping[str, str]) -> Iterator[str]:
    """The elements of the diagram that a resource belongs to."""
    outer = change.address.split(".")[1] if change.address.startswith("module.") else ""
    for prefix in ("peering_", "transit_peering_"):
        if outer.startswith(prefix) and (name := peerings.get(outer.removeprefix(prefix))):
            yield f"peering/{name}"
            return
    if not change.site:
        return
    keys = _KEY.findall(change.address)
    kind = change.type
    if f"module.{outer}.module.node_pool[" in change.address and keys:
        yield f"{change.site}/{keys[0]}"
    elif kind == "aws_subnet" and keys:
        yield f"{change.site}/subnets/{keys[-1]}"
    elif kind in ("aws_vpn_connection", "aws_vpn_connection_route") and keys:
        yield f"link/{keys[-1].split(' ')[0]}"
    elif kind == "aws_instance" and keys:
        yield f"{change.site}/machines/{keys[-1]}"
    elif kind == "aws_efs_file_system" and keys:
        yield f"{change.site}/efs/{keys[-1]}"
    elif kind == "aws_s3_bucket" and keys:
        yield f"{change.site}/s3/{keys[-1]}"
    elif kind == "aws_vpc":
        yield change.site
