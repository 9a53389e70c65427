"""Benchmarks can be run, and what they measure is what they say. How fast anything is, is no test."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.autoscaler import burst, decoding, diverse, loop, waiting
from benchmarks.cases import CASES, LONG, Row

FOLDER = Path(run.__file__).parent
PROGRAMS = ("__init__", "peer_networks")
"""What other interpreters import."""


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """As it was, afterwards."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_each_module_can_be_imported_and_cases_have_results() -> None:
    for path in FOLDER.rglob("*.py"):
        if path.stem not in PROGRAMS:
            import_module(".".join(path.relative_to(FOLDER.parent).with_suffix("").parts))
    kept = json.loads(run.RESULTS.read_text())["cases"]
    assert set(kept) <= {*CASES, *LONG, run.PEERS}
    for case in kept.values():
        assert [Row(**row) for row in case["rows"]]


@pytest.mark.parametrize("unlike", [False, True])
def test_a_whole_loop_buys_what_waits_and_nothing_twice(unlike: bool) -> None:
    found = loop.whole(1_200, 40, diverse=unlike)
    # 300 run; of 320 GPUs 20 are free, and 110 machines of eight GPUs hold the other 880.
    assert found.outcomes == {"fits": 20, "starting": 880}
    assert sum(found.sizes.values()) == 110
    assert waiting.measure(300, diverse=unlike).known == 300


def test_pods_are_decoded_and_placed_on_few_machines() -> None:
    assert decoding.measure(1_200, 600).shapes == 3, "of three Jobs"
    assert decoding.measure(300, 1, diverse=True).shapes == 300
    equal, unlike = burst.measure(1_600), diverse.measure(500)
    assert (equal.placed, sum(equal.sizes.values()), unlike.placed) == (1_600, 200, 500)
    assert 100 <= unlike.nodes <= 103, "one in five wants a machine for itself: the others fit beside those"
