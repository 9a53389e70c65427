"""The table of checks: rules across fields of the spec, each a small function with a stable code.

A code consists of the letters of a family and three digits. It is never reused for another rule, even after
its rule is removed.
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
    "GPU": "GPUs that pods share",
    "K8S": "Kubernetes",
    "WORK": "Classes of work, and whose GPUs are guaranteed",
    "ADD": "Add-ons of the cluster",
    "STO": "Storage and state",
    "DNS": "Names in DNS",
    "ACC": "Access and users",
    "AUT": "The autoscaler",
    "RES": "What researchers run on",
    "NAME": "Names and tags",
    "QUOTA": "Quotas of the account",
    "WAIV": "Waivers",
    "LOCK": "The lock file",
    "NUM": "Numbers that stay for good",
    "UPD": "Changes of a live cluster",
}
"""The letters of a code → the subject of its rules, in the order of the reference."""

_CODE = re.compile(r"([A-Z]|K8)+\d{3}")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule: path, message, and fix.

    ``path`` is the path in the spec, as keys and indices.
    """

    path: Path
    message: str
    hint: str = ""


Rule: TypeAlias = Callable[[Facts], Iterator[Finding]]
"""Yields all findings of its subject. Pure; a rule that depends on a value which another rule rejects yields
nothing."""


@dataclass(frozen=True, slots=True)
class Check:
    """A rule and its code. ``doc`` is its line in the reference.

    ``function`` is None for problems that are raised elsewhere (the file's format, the lock file, the
    allocator) and only declared here, for the reference and for waivers. A problem that cannot be waived
    prevents any further processing.
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
    """All checks registered so far, sorted by code."""
    return dict(sorted(_checks.items()))


def _add(one: Check) -> None:
    if not _CODE.fullmatch(one.code) or one.family not in FAMILIES:
        raise ValueError(f"{one.code} is not a code of a known family")
    if one.code in _checks:
        raise ValueError(f"two checks have the code {one.code}")
    _checks[one.code] = one


UNUSED_WAIVER: Final = "WAIV002"
"""A waiver without a finding, which is known only after all rules have run."""

# Codes whose findings are raised elsewhere: they need more data than the spec, or are found before there is
# one.
for code, doc in {
    "SPEC001": "The file is not readable YAML: its syntax, its encoding, a tag, a merge key.",
    "SPEC002": "A key that the spec does not know.",
    "SPEC003": "A value of the wrong kind or out of its range.",
    "SPEC004": "A key that must be given is missing.",
    "SPEC005": "A key is written twice in one mapping.",
    "SPEC006": "The file that `extends` names can't be read, or the chain goes round in a circle.",
    # infra.load: the name of the file
    "NAME009": "The file's name, the prefix of every name in AWS, is not valid there.",
    # infra.resolve: the allocator
    "NET030": "Two blocks overlap once all are allocated, or one touches a range that is kept free.",
    "NET031": "A block does not fit into the range it is taken from.",
    "NET032": "A block that the lock file holds is no longer the one, or the size, that the spec asks for.",
    "NET033": "A block from the spec or lock file is outside of the range it belongs to.",
    # infra.resolve: the lock file
    "LOCK001": "The lock file can't be read as one.",
    "LOCK002": "A key in the lock file that does not belong there.",
    "LOCK003": "A value in the lock file that is none.",
    "LOCK004": "The lock file is of a version that this Causeway does not know.",
    "LOCK005": "A key is written twice in the lock file.",
    "LOCK006": "Two blocks of the lock file overlap, or two have one number: two branches took the same.",
    "LOCK007": "A site is in another AWS region than the lock file holds.",
    # infra.resolve: uids, gids, AS numbers
    "NUM001": "Two people, groups, sites or regions have the same number.",
    "NUM002": "No number is left to give out.",
    "NUM003": "A number is stated that is not the one the lock file holds.",
    # invoke plan
    "UPD001": "A field was changed that can't change after the first apply.",
    # invoke doctor and the first plan: infra.checks.account_zones
    "SITE034": "The account does not have a zone of the spec.",
    "POOL049": "The account is not offered any instance type of a pool in the pool's zones.",
    "ACC029": "The account is not offered the type of a machine with a name in the zone of the machine.",
}.items():
    declare(code, Level.ERROR, doc)

# invoke plan
declare("STO026", Level.WARNING, "The state of a real account is a local file. An error where CI is set.")

# invoke doctor and the first plan
declare(
    "POOL050", Level.WARNING, "The account is not offered some types of a pool, or none in one of its zones."
)

declare(UNUSED_WAIVER, Level.WARNING, "A waiver that no finding needs.")
