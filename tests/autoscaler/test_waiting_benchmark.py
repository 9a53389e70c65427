"""What the benchmark of a long queue claims, small: each that waits has a start."""

from __future__ import annotations

import pytest

from benchmarks.autoscaler import waiting


@pytest.mark.parametrize("diverse", [False, True], ids=["equal", "different"])
def test_each_has_a_start(diverse: bool) -> None:
    assert waiting.measure(300, diverse=diverse).known == 300
