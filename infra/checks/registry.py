"""The table of checks: rules across fields of the spec, each one small function with a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from infra.errors import Level, Path
from infra.spec import Spec


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: where, what, and what would mend it."""

    path: Path
    message: str
    hint: str = ""


Rule: TypeAlias = Callable[[Spec], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. ``doc`` is its line in the reference."""

    code: str
    level: Level
    doc: str
    rule: Rule


CHECKS: dict[str, Check] = {}
"""Every check, by code."""


def check(code: str, level: Level, doc: str) -> Callable[[Rule], Rule]:
    """Register a rule under a code that is never used for another."""

    def register(rule: Rule) -> Rule:
        if code in CHECKS:
            raise ValueError(f"two checks have the code {code}")
        CHECKS[code] = Check(code, level, doc, rule)
        return rule

    return register
