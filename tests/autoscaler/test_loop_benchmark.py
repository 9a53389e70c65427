"""What the benchmark of a whole loop claims, small: all that waits gets machines, none of them twice."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from benchmarks.autoscaler import loop


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """As it was, afterwards."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("diverse", [False, True], ids=["equal", "different"])
def test_all_of_it_gets_machines(diverse: bool) -> None:
    found = loop.whole(1_200, 40, diverse=diverse)
    # 300 run; of 320 cards 20 are free, and 110 machines of eight cards hold the other 880.
    assert found.outcomes == {"fits": 20, "starting": 880}
    assert sum(found.sizes.values()) == 110
