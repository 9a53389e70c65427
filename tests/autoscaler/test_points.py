"""Each point of what the autoscaler must do has a test that carries its number: ``test_14_…``.

The points, in short, stand in ``docs/autoscaler.md`` under the same numbers.
"""

from __future__ import annotations

import re
from pathlib import Path

POINTS = range(1, 37)
TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs" / "autoscaler.md"


def test_every_point_has_a_test() -> None:
    found = {
        int(number)
        for folder in ("autoscaler", "simulator")
        for path in (TESTS / folder).rglob("test_*.py")
        for number in re.findall(r"def test_(\d\d)_", path.read_text())
    }
    assert found >= {*POINTS}, f"without a test: {sorted({*POINTS} - found)}"


def test_every_point_is_described() -> None:
    told = {int(number) for number in re.findall(r"^(\d+)\. ", DOCS.read_text(), re.M)}
    assert told >= {*POINTS}, f"not described: {sorted({*POINTS} - told)}"
