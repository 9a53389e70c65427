"""The time of day is asked for in one place; everything else is given a moment, or asks there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

INFRA = Path(__file__).parents[1] / "infra"
CLOCK = "drive/clock.py"
BESIDE = ("autoscaler", "localaws", "simulator")
"""Programs of their own, which are not in the line from a spec to a cluster."""

MODULES = sorted(
    path for path in INFRA.rglob("*.py") if path.relative_to(INFRA).parts[0] not in BESIDE
)  # fmt: skip
ASKS = {
    *(("datetime", name) for name in ("now", "utcnow", "today")),
    ("date", "today"),
    *(("time", name) for name in ("time", "time_ns")),
}
DEFAULT_TO_NOW = {("time", "localtime"), ("time", "gmtime")}
"""These convert a moment, and without one ask for it."""


def asked(source: str) -> Iterator[int]:
    """The lines that ask the clock: durations (``time.monotonic``) are not the time of day."""
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Attribute) and _name(node) in ASKS) or (
            isinstance(node, ast.Call) and not node.args and _name(node.func) in DEFAULT_TO_NOW
        ):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (node.lineno for each in node.names if ("time", each.name) in ASKS)


def _name(node: ast.expr) -> tuple[str, str]:
    """``datetime.datetime.now`` → ``("datetime", "now")``."""
    if not isinstance(node, ast.Attribute):
        return "", ""
    owner = node.value
    return (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")), node.attr


def test_one_module_asks_the_clock() -> None:
    assert [
        path.relative_to(INFRA).as_posix() for path in MODULES if [*asked(path.read_text(encoding="utf-8"))]
    ] == [CLOCK]
