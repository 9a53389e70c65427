"""What the benchmarks of placement claim, small: everything is placed, on few machines."""

from __future__ import annotations

from benchmarks.autoscaler import burst, diverse


def test_a_burst_is_placed_in_one_go() -> None:
    found = burst.measure(1_600)
    assert found.placed == 1_600
    assert sum(found.sizes.values()) == 200


def test_diverse_pods_take_as_few_machines_as_they_may() -> None:
    """One in five wants a machine for itself: the others are to fit beside those."""
    found = diverse.measure(500)
    assert found.placed == 500
    assert 100 <= found.nodes <= 103
