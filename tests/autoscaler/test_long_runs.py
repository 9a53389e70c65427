"""Long runs with random faults: no pod that can be placed starves, no running job is lost by choice,
nothing is left over.

Capacity that comes and goes, zones that are empty, regions that do not answer, writes that are refused,
machines that never boot, spot machines that are taken away, and a controller that is killed before one of
its actions with nothing but its saved memory to go on from.
"""

from __future__ import annotations

import pytest
from simulator import chaos
from simulator.worlds import FaultyWorld, config, group, job, trace

from infra.simulator import run
from infra.simulator.cloud import RefusedError


@pytest.mark.parametrize("seed", range(1, 13))
def test_work_is_done_and_nothing_is_left(seed: int) -> None:
    run = chaos.run(seed)
    assert run.wrongs == []
    assert run.result.finished == run.result.pods > 25


@pytest.mark.parametrize("stillborn", [0.0, 0.3])
def test_a_machine_that_aws_never_ends_holds_up_no_other(stillborn: float) -> None:
    settings = config(group(max=30))
    asked = trace(job(pods=8, gpus=4, seconds=3000), stillborn=stillborn)
    there = FaultyWorld(settings, asked)

    def fault(kind: str, name: str) -> None:
        if kind == "TerminateInstance" and name == "i-gpu-2":
            raise RefusedError("OperationNotPermitted: modify its 'disableApiTermination' attribute")

    there.fault = fault
    result = run(settings, asked, world=there, until=4 * 3600)
    assert result.finished == 8
    assert [each.id for each in there.snapshot().groups["gpu"].instances] == ["i-gpu-2"]


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_longer_run(seed: int) -> None:
    run = chaos.run(seed, hours=24, jobs=150)
    assert run.wrongs == []
