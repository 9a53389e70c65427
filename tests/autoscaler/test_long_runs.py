"""Long runs with random faults: no pod that can be placed starves, no running job is lost by choice,
nothing is left over.

Capacity that comes and goes, zones that are empty, regions that do not answer, writes that are refused,
machines that never boot, spot machines that are taken away, and a controller that is killed before one of
its actions with nothing but its saved memory to go on from.
"""

from __future__ import annotations

import pytest
from autoscaler.simulate import chaos


@pytest.mark.parametrize("seed", range(1, 13))
def test_work_is_done_and_nothing_is_left(seed: int) -> None:
    run = chaos.run(seed)
    assert run.wrongs == []
    assert run.result.finished == run.result.pods > 25


def test_faults_and_kills_do_happen() -> None:
    """The runs above would prove little without."""
    runs = [chaos.run(seed, faults=0.15, kills=0.15) for seed in (3, 4, 5)]
    assert [run.wrongs for run in runs] == [[], [], []]
    assert sum(run.seen.kills for run in runs) > 10
    assert sum(run.seen.faults for run in runs) > 10
    assert sum(run.result.failed for run in runs) > 0


def test_the_same_seed_is_the_same_run() -> None:
    first, second = chaos.run(7, jobs=10), chaos.run(7, jobs=10)
    assert first.result.samples == second.result.samples
    assert first.result.writes == second.result.writes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_a_longer_run(seed: int) -> None:
    run = chaos.run(seed, hours=24, jobs=150)
    assert run.wrongs == []
