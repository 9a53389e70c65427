"""Rules across fields: Spec → Problems, from a table of small functions.

A finding refers to what the user wrote, with the exact path, and contains the fix. One cause gives one
finding: a rule that depends on a value which another rule rejects reports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from infra.checks import (
    access,
    addons,
    autoinstall,
    autoscaler,
    block_sizes,
    blocks,
    dns,
    egress,
    images,
    kubernetes,
    launch,
    limits,
    links,
    machines,
    names,
    pools,
    quotas,
    research,
    sharing,
    sites,
    software,
    storage,
    waivers,
    workloads,
)
from infra.checks.facts import Facts
from infra.checks.registry import FAMILIES, UNUSED_WAIVER, Check, Finding, registered
from infra.errors import Path, Position, Problem, dotted
from infra.schema import Spec

__all__ = ["CHECKS", "FAMILIES", "MODULES", "Check", "Finding", "examine", "run"]

MODULES: Final = (
    blocks, links, block_sizes, sites, egress, autoinstall, pools, launch, images, sharing,
    software, machines, kubernetes, workloads, addons, storage, dns, access, autoscaler, research, names,
    quotas, limits, waivers,
)  # fmt: skip
"""The modules that register checks in ``CHECKS`` on import."""

CHECKS: Final[Mapping[str, Check]] = MappingProxyType(dict(registered()))
"""Code → check, sorted by code."""

_START: Final = Position("", 0)


def run(spec: Spec) -> Iterator[tuple[Check, Finding]]:
    """All findings of the rules, without applying waivers."""
    facts = Facts(spec)
    for check in CHECKS.values():
        if check.function is not None:
            for finding in check.function(facts):
                yield check, finding


def examine(spec: Spec, position_of: Callable[[Path], Position | None]) -> tuple[Problem, ...]:
    """All problems found by the rules, in the order of the file, with waivers applied."""
    book = waivers.Book(spec)
    problems = [_problem(check, finding, position_of, book) for check, finding in run(spec)]
    unused = CHECKS[UNUSED_WAIVER]
    problems += [_problem(unused, finding, position_of, book) for finding in book.unused(CHECKS)]
    return tuple(sorted(problems, key=lambda one: (one.position or _START, one.code, one.path)))


def _problem(
    check: Check, finding: Finding, position_of: Callable[[Path], Position | None], book: waivers.Book
) -> Problem:
    path = dotted(finding.path)
    return Problem(
        check.code,
        path,
        finding.message,
        check.level,
        position_of(finding.path),
        finding.hint,
        book.reason(check.code, path) if check.waivable else "",
    )
