"""The table of checks: rules across fields of the spec, each one small function with a stable code.

A code is a family's letters and three digits. It is never used for another rule, also when its own is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from infra.checks.facts import Facts
from infra.errors import Level, Path

FAMILIES: Final[Mapping[str, str]] = {
    "SPEC": "The form of the file",
    "NET": "Networks and addresses",
    "SITE": "Sites and regions",
    "POOL": "Node pools",
    "IMG": "Images and drivers",
    "SOFT": "Software from outside of the distribution",
    "MACH": "What is the same on every machine",
    "GPU": "Cards that pods share",
    "K8S": "Kubernetes",
    "WORK": "Classes of work, and who is sure of which GPUs",
    "ADD": "Add-ons of the cluster",
    "STO": "Storage and state",
    "DNS": "Names in DNS",
    "ACC": "Doors and people",
    "AUT": "The autoscaler",
    "RES": "What researchers run on",
    "NAME": "Names and tags",
    "QUOTA": "Quotas of the account",
    "WAIV": "Waivers",
    "LOCK": "The lock file",
    "NUM": "Numbers that stay for good",
    "UPD": "Changes of a live cluster",
}
"""The letters of a code → what its rules are about, in the order of the reference."""

_CODE = re.compile(r"([A-Z]|K8)+\d{3}")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found: where, what, and what would fix it.

    ``path`` is the place in the spec, as keys and indices.
    """

    path: Path
    message: str
    hint: str = ""


Rule: TypeAlias = Callable[[Facts], Iterator[Finding]]
"""Everything that is wrong in its own matter. Pure; a rule that needs what another refuses stays silent."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule and its code. ``doc`` is its line in the reference.

    ``function`` is None for what is raised elsewhere (the file's form, the lock file, the allocator) and only
    declared here, for the reference and for waivers. What can't be waived leaves nothing to go on with.
    """

    code: str
    level: Level
    doc: str
    function: Rule | None = None
    waivable: bool = True

    @property
    def family(self) -> str:
        """The letters of its code, a key of ``FAMILIES``: ``NET``."""
        return self.code[:-3]


_checks: dict[str, Check] = {}


def check(code: str, level: Level, doc: str, *, waivable: bool = True) -> Callable[[Rule], Rule]:
    """Register a rule under its code."""

    def register(rule: Rule) -> Rule:
        _add(Check(code, level, doc, rule, waivable))
        return rule

    return register


def declare(code: str, level: Level, doc: str, *, waivable: bool = False) -> None:
    """Register a code that is raised elsewhere."""
    _add(Check(code, level, doc, waivable=waivable))


def registered() -> Mapping[str, Check]:
    """Every check so far, in the order of their codes."""
    return dict(sorted(_checks.items()))


def _add(one: Check) -> None:
    if not _CODE.fullmatch(one.code) or one.family not in FAMILIES:
        raise ValueError(f"{one.code} is not a code of a known family")
    if one.code in _checks:
        raise ValueError(f"two checks have the code {one.code}")
    _checks[one.code] = one
