"""What the benchmark decodes is what it says."""

from __future__ import annotations

from benchmarks.autoscaler.decoding import measure


def test_pods_of_real_size_share_their_shapes() -> None:
    found = measure(1_200, 600)
    assert found.pods == 1_200
    assert found.bytes_a_pod > 4_000
    assert found.shapes == 3  # of three Jobs


def test_pods_that_are_all_different_do_not() -> None:
    assert measure(300, 1, diverse=True).shapes == 300
