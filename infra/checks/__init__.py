"""Rules across fields: Spec → Problems, through a table of small functions."""

from __future__ import annotations

from collections.abc import Callable

from infra.checks import network, places, pools
from infra.checks.registry import CHECKS
from infra.errors import Path, Position, Problem, dotted
from infra.spec import Spec

__all__ = ["CHECKS", "FAMILIES", "examine"]

FAMILIES = (network, places, pools)
"""The modules whose import fills ``CHECKS``."""


def examine(spec: Spec, position_of: Callable[[Path], Position | None]) -> tuple[Problem, ...]:
    """Everything the checks find, in the order of the file, waived where the spec says so."""
    found = [
        Problem(
            check.code,
            dotted(finding.path),
            finding.message,
            check.level,
            position_of(finding.path),
            finding.hint,
            _waived(spec, check.code, dotted(finding.path)),
        )
        for check in CHECKS.values()
        for finding in check.rule(spec)
    ]
    return tuple(sorted(found, key=lambda problem: (problem.position or Position("", 0), problem.code)))


def _waived(spec: Spec, code: str, path: str) -> str:
    """The reason a person gave for living with a finding, or the empty string."""
    for waiver in spec.waivers:
        below = (
            waiver.path is None
            or path == waiver.path
            or path.startswith((f"{waiver.path}.", f"{waiver.path}["))
        )
        if waiver.code == code and below:
            return waiver.reason
    return ""
