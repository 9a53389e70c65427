"""How many rules the security groups of a VPC hold, from the tables of the module that makes them.

The tables of ``security_groups.tf`` are the one place where a rule is written: here their lines are counted,
without Terraform. Those that let out are the same few in every VPC.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Final

from infra.shipped_files import ROOT

_MODULE: Final = ROOT / "templates" / "terraform" / "modules" / "network" / "security_groups.tf"
_GROUP: Final = re.compile(r"\bgroup\s*=\s*\"([a-z-]+)\"")
_WORLD: Final = "vpn"
"""The group whose ports the world reaches."""


def inbound(inside: int, overlay: int, world: int) -> Mapping[str, int]:
    """Group → the rules that let in.

    ``inside``: blocks that belong to the cluster, each of which makes a rule of a line. ``overlay``: entries
    of the pod network's ports. ``world``: ports of the VPN. A rule that names a group counts as one, however
    many machines wear it (VPC User Guide, "Security group size").
    """
    rules: Counter[str] = Counter({_WORLD: world})
    for group, lines in _lines("from_inside").items():
        rules[group] += lines * inside
    for group, lines in _lines("overlay").items():
        rules[group] += lines * inside * overlay
    return rules + _lines("from_group")


@cache
def _lines(table: str) -> Counter[str]:
    """Group → its lines in a table."""
    text = _MODULE.read_text(encoding="utf-8")
    found = re.search(rf"^  {table} = \{{\n(.*?)^  \}}", text, re.MULTILINE | re.DOTALL)
    assert found is not None, table
    return Counter(_GROUP.findall(found[1]))
