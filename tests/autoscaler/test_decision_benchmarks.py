"""What the autoscaler's benchmarks claim, small: all that waits gets machines, and as few as possible."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from benchmarks.autoscaler import burst, decoding, diverse, loop, waiting


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Garbage collection as it was, afterwards."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_burst_is_placed_in_one_loop() -> None:
    burst_of_1600 = burst.measure(1_600)
    assert (burst_of_1600.placed, sum(burst_of_1600.sizes.values())) == (1_600, 200)


def test_diverse_pods_take_as_few_machines_as_they_may() -> None:
    """One in five wants a machine for itself: the others are to fit beside those."""
    placed = diverse.measure(500)
    assert placed.placed == 500
    assert 100 <= placed.nodes <= 103


@pytest.mark.parametrize("different", [False, True])
def test_a_whole_loop(different: bool) -> None:
    whole = loop.whole(1_200, 40, diverse=different)
    # 300 run; of 320 GPUs 20 are free, and 110 machines of eight GPUs hold the other 880.
    assert whole.outcomes == {"fits": 20, "starting": 880}
    assert sum(whole.sizes.values()) == 110
    assert waiting.measure(300, diverse=different).known == 300
    assert decoding.measure(600, 100, diverse=different).shapes == (600 if different else 2)
