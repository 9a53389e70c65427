"""Checks of this computer and the AWS account, each with a fix."""

from __future__ import annotations

from typing import Final

from infra.drive.doctor import account, machine
from infra.drive.doctor.context import Check, Context, Finding

__all__ = ["CHECKS", "Check", "Context", "Finding", "examine", "text", "to_json"]

CHECKS: Final[tuple[Check, ...]] = (
    machine.python,
    machine.engine,
    machine.cli_config,
    machine.providers,
    machine.tools,
    machine.disk,
    account.credentials,
    account.clock,
    account.regions,
    account.quotas,
    account.state_bucket,
)
"""In the order in which problems should be fixed. A new check is one function and one row."""


_TERRAFORM: Final = frozenset({machine.engine, machine.cli_config, machine.providers})


def examine(context: Context) -> list[Finding]:
    """The findings of all checks, in order."""
    checks = CHECKS if context.builds else [check for check in CHECKS if check not in _TERRAFORM]
    return [finding for check in checks for finding in check(context)]


def text(findings: list[Finding]) -> str:
    """One line per finding, followed by its fix."""
    marks = {"ok": "✓", "warn": "!", "fail": "✗"}
    width = max((len(one.check) for one in findings), default=0)
    lines = []
    for one in findings:
        lines.append(f"{marks[one.state]} {one.check.ljust(width)}  {one.said}")
        lines += [f"  {' ' * width}  → {line}" for line in one.fix.splitlines()]
    return "\n".join(lines)


def to_json(findings: list[Finding]) -> list[dict[str, str]]:
    """``[{"check", "state", "said", "fix"}]``."""
    return [{"check": one.check, "state": one.state, "said": one.said, "fix": one.fix} for one in findings]
