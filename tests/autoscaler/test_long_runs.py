"""Long runs with random faults: no pod that can be placed starves, no running job is lost by choice,
nothing is left over.

Capacity that comes and goes, zones that are empty, regions that do not answer, writes that are refused,
machines that never boot, spot machines that are taken away, and a controller that is killed before one of
its actions with nothing but its saved memory to go on from.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from simulator import chaos
from simulator.worlds import FaultyWorld, config, group, job, trace

from infra.autoscaler.config import Config
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Action, Decision, SetDesired, Terminate
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.snapshot import Snapshot
from infra.simulator import run
from infra.simulator.cloud import RefusedError


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
    assert sum(run.seen.stale for run in runs) > 10
    assert sum(run.result.failed for run in runs) > 0


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


def _bad(change: Callable[[tuple[Action, ...], Snapshot], tuple[Action, ...]]) -> chaos.Decide:
    def bad(snapshot: Snapshot, memory: Memory, settings: Config, now: float) -> Decision:
        decided = decide(snapshot, memory, settings, now)
        return replace(decided, actions=change(decided.actions, snapshot))

    return bad


def test_what_must_not_be_would_be_seen() -> None:
    """A controller that forgets to end machines, one that ends busy ones, one that never grows a group."""
    lazy = _bad(lambda actions, _: tuple(each for each in actions if not isinstance(each, Terminate)))
    assert any("are left" in wrong for wrong in chaos.run(1, decide=lazy).wrongs)

    def hasty(actions: tuple[Action, ...], snapshot: Snapshot) -> tuple[Action, ...]:
        busy = {pod.node for pod in snapshot.pods if pod.node}
        homes = {each.id: name for name, group in snapshot.groups.items() for each in group.instances}
        ended = [
            Terminate(homes[node.instance], node.instance, node.name, "why not", forced=True)
            for node in snapshot.nodes
            if node.name in busy and node.instance in homes and int(snapshot.at) % 3600 == 0
        ]
        return (*actions, *ended)

    assert any("ended with work on it" in wrong for wrong in chaos.run(1, decide=_bad(hasty)).wrongs)
    small = _bad(lambda actions, _: tuple(each for each in actions if not isinstance(each, SetDesired)))
    assert any("never came to their end" in wrong for wrong in chaos.run(1, decide=small).wrongs)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = chaos.run(7, jobs=10), chaos.run(7, jobs=10)
    assert first.result.samples == second.result.samples
    assert first.result.writes == second.result.writes


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_longer_run(seed: int) -> None:
    run = chaos.run(seed, hours=24, jobs=150)
    assert run.wrongs == []
