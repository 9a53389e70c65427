"""The whole controller against a Kubernetes API and an AWS, both over HTTP: what goes wrong in earnest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from autoscaler import apiobjects, make
from autoscaler.controller_stage import JOBS, NODES, Stage, Turn, staged
from autoscaler.embedded import EmbeddedAws
from autoscaler.kube.clusters import until
from localaws import faults

from infra.autoscaler.config import Group
from infra.autoscaler.decision import RemoveNode, SetDesired, Terminate

WEST, EAST, EUROPE = (make.group(site) for site in ("us-west-2", "us-east-1", "eu-west-1"))


@pytest.fixture
def stage(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Stage]:
    with staged(aws, tmp_path) as found:
        yield found


@pytest.fixture
def on(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Stages with groups of the test's own."""
    with ExitStack() as stack:
        yield lambda *groups, **more: stack.enter_context(staged(aws, tmp_path, *groups, **more))


def no_capacity(group: Group, times: int = faults.FOREVER) -> faults.Fault:
    return dataclasses.replace(faults.no_capacity("p3.8xlarge", times=times), region=group.region)


def resized(turn: Turn) -> dict[str, int]:
    return {each.group: each.desired for each in turn.decision.actions if isinstance(each, SetDesired)}


def test_02_pods_get_their_machines_and_a_second_loop_writes_nothing(stage: Stage) -> None:
    stage.pods(3)
    turn = stage.turn()
    assert turn.cycle.error is None
    assert stage.sizes() == {WEST.name: 3}
    assert stage.aws.writes() == ["SetDesiredCapacity"]
    for _ in range(3):
        assert stage.turn(10).decision.actions == ()
    stage.boot()
    assert stage.turn(10).decision.actions == ()
    stage.schedule()
    assert stage.turn(10).decision.actions == ()
    assert stage.aws.writes() == ["SetDesiredCapacity"]


def test_a_burst_of_1600_pods_is_one_write_a_group_in_one_loop(on: Callable[..., Stage]) -> None:
    west, east = make.group(max=300), make.group("us-east-1", max=400)
    stage = on(west, east)
    stage.pods(1600, gpus=1)
    turn = stage.turn()
    assert stage.sizes() == {west.name: 300, east.name: 100}
    assert stage.aws.writes() == ["SetDesiredCapacity"] * 2
    assert turn.cycle.error is None


def test_14_no_capacity_moves_the_remainder_in_the_loop_that_sees_it(stage: Stage) -> None:
    stage.aws.order(no_capacity(WEST))
    stage.pods(4)
    stage.turn()
    assert stage.sizes() == {WEST.name: 4}
    turn = stage.turn(10)
    assert resized(turn) == {WEST.name: 0, EAST.name: 4}
    assert stage.sizes() == {EAST.name: 4}
    assert len(stage.aws.instances(EAST)) == 4
    assert turn.decision.figures.failures[WEST.name] >= 1
    assert stage.turn(10).decision.actions == ()


def test_14_two_regions_without_capacity_and_the_third_has_it(stage: Stage) -> None:
    stage.aws.order(no_capacity(WEST), no_capacity(EAST))
    stage.pods(4)
    for _ in range(3):
        stage.turn(10)
    assert stage.sizes() == {EUROPE.name: 4}


def test_16_failures_from_before_our_resize_and_of_rebalancing_are_no_news(stage: Stage) -> None:
    text = faults.no_capacity("p3.8xlarge").message
    stage.aws.failed(WEST, text, start=stage.now - 3000)
    stage.pods(2)
    stage.turn()
    stage.aws.failed(WEST, text, start=stage.now - 100)
    rebalancing = (
        "At 2027-01-15T08:00:00Z instances were launched to balance instances in zones us-west-2a with other "
        "zones resulting in more than desired number of instances in the group."
    )
    stage.aws.failed(WEST, text, start=stage.now + 5, Cause=rebalancing)
    turn = stage.turn(10)
    assert turn.decision.actions == ()
    assert turn.decision.figures.failures == {}
    assert stage.sizes() == {WEST.name: 2}


def test_17_activities_that_are_gone_are_no_news(stage: Stage) -> None:
    stage.aws.order(no_capacity(WEST, times=1))
    stage.pods(2)
    stage.turn()
    stage.turn(10)
    stage.aws.group(WEST).activities.clear()
    turn = stage.turn(10)
    assert turn.cycle.error is None
    assert turn.decision.actions == ()
    assert WEST.name in turn.decision.memory.backoffs, "the bar stays without new activities"


def test_18_a_group_goes_back_to_what_it_has_and_loses_none(stage: Stage) -> None:
    stage.pods(3)
    stage.turn()
    there = stage.aws.instances(WEST)
    stage.boot()
    stage.schedule()
    stage.aws.order(no_capacity(WEST))
    stage.pods(5, "more")
    stage.turn(10)
    assert stage.sizes() == {WEST.name: 8}
    stage.turn(10)
    assert stage.sizes() == {WEST.name: 3, EAST.name: 5}
    assert stage.aws.instances(WEST) == there


def test_18_machines_that_come_while_it_goes_back_are_kept(stage: Stage) -> None:
    stage.aws.order(no_capacity(WEST))
    stage.pods(4)
    stage.turn()

    def come() -> None:
        faults.FAULTS.clear()
        stage.aws.group(WEST).set_desired_capacity(4)  # AWS has found some after all

    stage.first.meanwhile(come)
    turn = stage.turn(10)
    assert resized(turn)[WEST.name] == 0
    assert stage.sizes()[WEST.name] == 4
    assert len(stage.aws.instances(WEST)) == 4


def test_19_the_primary_region_is_first_again_when_its_bar_ends(stage: Stage) -> None:
    stage.aws.order(no_capacity(WEST))
    stage.pods(2)
    stage.turn()
    stage.turn(10)
    assert stage.sizes() == {EAST.name: 2}
    stage.boot()
    stage.schedule()
    faults.FAULTS.clear()
    stage.pods(1, "soon")
    stage.turn(60)
    assert stage.sizes() == {EAST.name: 3}
    stage.boot()
    stage.schedule()
    stage.pods(1, "later")
    stage.turn(300)
    assert stage.sizes() == {WEST.name: 1, EAST.name: 3}


def test_19_a_region_whose_api_is_away_is_passed_over(stage: Stage) -> None:
    for action in ("DescribeAutoScalingGroups", "SetDesiredCapacity"):
        stage.aws.order(dataclasses.replace(faults.broken(action, times=50), region=WEST.region))
    stage.pods(2)
    turn = stage.turn()
    assert "aws/us-west-2" in turn.snapshot.errors
    assert stage.sizes() == {EAST.name: 2}
    faults.FAULTS.clear()
    stage.pods(1, "more")
    stage.turn(10)
    assert stage.sizes() == {WEST.name: 1, EAST.name: 2}


def test_20_what_is_beyond_the_most_goes_to_the_next(on: Callable[..., Stage]) -> None:
    stage = on(make.group(max=3), EAST, quotas={EAST.region: {"on-demand-p": 64}})
    stage.pods(7)
    turn = stage.turn()
    assert stage.sizes() == {WEST.name: 3, EAST.name: 2}, "two of 32 vCPUs"
    assert turn.decision.figures.pending["waits"] == 2


def idle_machines(stage: Stage, count: int) -> list[str]:
    """Machines whose pods have ended."""
    names = stage.pods(count)
    stage.turn()
    machines = stage.boot()
    stage.schedule()
    stage.turn(10)
    stage.finish(*names)
    return machines


def test_22_an_idle_machine_is_tainted_looked_at_again_and_ended(stage: Stage) -> None:
    (machine,) = idle_machines(stage, 1)
    stage.turn(10)
    assert stage.tainted() == []
    stage.turn(601)
    assert stage.tainted() == [machine]
    assert stage.aws.instances(WEST) == [machine]
    stage.turn(10)
    assert stage.aws.instances(WEST) == [machine], "it is looked at once more first"
    for _ in range(4):
        stage.turn(31)
    assert stage.sizes() == {}
    assert stage.aws.instances(WEST) == []
    assert stage.nodes() == [machine], "it may shut down yet"
    stage.silence()
    stage.turn(130)
    assert stage.nodes() == [], "and its node goes when it is gone"
    assert stage.aws.writes().count("TerminateInstanceInAutoScalingGroup") == 1


def test_22_a_pod_that_arrives_at_the_last_moment_keeps_its_machine(stage: Stage) -> None:
    (machine,) = idle_machines(stage, 1)
    stage.turn(10)
    stage.turn(601)
    assert stage.tainted() == [machine]
    cluster = stage.first.cluster
    look = cluster.pods_on

    def late(node: str) -> Any:
        if stage.api.get("/api/v1/pods", "late-0", "user-ada") is None:
            stage.pods(1, "late")
            stage.bind("late-0", machine)
        return look(node)

    cluster.pods_on = late  # type: ignore[method-assign]
    for _ in range(5):
        stage.turn(31)
    assert stage.aws.instances(WEST) == [machine]
    assert "TerminateInstanceInAutoScalingGroup" not in stage.aws.writes()
    assert stage.tainted() == [], "and its taint is taken off again"


def test_28_a_terminate_that_is_refused_leaves_the_node(stage: Stage) -> None:
    (machine,) = idle_machines(stage, 1)
    stage.aws.order(
        dataclasses.replace(
            faults.refused("TerminateInstanceInAutoScalingGroup", "ScalingActivityInProgress", "busy"),
            times=3,
        )
    )
    refused = 0
    for _ in range(12):
        turn = stage.turn(31 if stage.tainted() else 601)
        assert turn.cycle.error is None
        removed = [each for each in turn.cycle.results if isinstance(each.action, RemoveNode)]
        for done in turn.cycle.results:
            if isinstance(done.action, Terminate) and done.result.status == "refused":
                refused += 1
                assert stage.nodes() == [machine]
                assert removed == []
    assert refused == 3
    stage.silence()
    stage.turn(130)
    assert stage.nodes() == []
    assert stage.sizes() == {}


def test_31_a_group_that_rebalances_or_is_unprotected_is_told_of(stage: Stage) -> None:
    group = stage.aws.group(WEST)
    group.suspended_processes = []
    group.new_instances_protected_from_scale_in = False
    turn = stage.turn()
    texts = [each.text for each in turn.decision.notices if WEST.pool in each.text or WEST.name in each.text]
    assert any("rebalanc" in text.lower() for text in texts), turn.decision.notices
    assert stage.turn(10).decision.notices == (), "once"


def test_33_a_group_that_may_not_be_written_holds_up_no_other(on: Callable[..., Stage]) -> None:
    west = make.group(max=2)
    stage = on(west, EAST)
    denied = faults.refused("SetDesiredCapacity", "AccessDenied", "not you", times=50)
    stage.aws.order(dataclasses.replace(denied, region=west.region))
    stage.pods(5)
    turn = stage.turn()
    assert turn.statuses == {west.name: "refused", EAST.name: "done"}
    assert stage.sizes() == {EAST.name: 3}
    faults.FAULTS.clear()
    stage.turn(10)
    assert stage.sizes() == {west.name: 2, EAST.name: 3}


def test_33_a_cluster_that_is_away_for_a_while(stage: Stage) -> None:
    stage.pods(2)
    stage.turn()
    stage.api.down()
    stage.now += 10
    cycle = stage.first.loop.once()
    assert cycle.decision is None or cycle.decision.actions == ()
    assert stage.aws.writes() == ["SetDesiredCapacity"]
    stage.api.up()
    stage.pods(1, "more")
    until(stage.first.cluster.lease.held)
    stage.turn(10)
    assert stage.sizes() == {WEST.name: 3}


def test_34_a_dry_run_writes_nothing_and_plans_the_same(stage: Stage) -> None:
    stage.pods(3)
    planned = stage.player(dry=True).turn()
    assert [each.result.status for each in planned.cycle.results] == ["planned"]
    assert stage.aws.writes() == []
    assert stage.written() == []
    assert stage.api.count("POST", "/leases") == 0
    assert stage.api.count("POST", "/events") == 0
    assert stage.turn().decision.actions == planned.decision.actions
    assert stage.sizes() == {WEST.name: 3}


def test_35_one_writes_and_the_other_takes_over(stage: Stage) -> None:
    first = stage.player()
    until(first.cluster.lease.held)
    second = stage.player()
    stage.pods(2)
    assert not second.turn().cycle.leading
    assert first.turn().cycle.leading
    assert stage.aws.writes() == ["SetDesiredCapacity"]
    first.end()
    until(second.cluster.lease.held)
    assert not first.turn(10).cycle.leading
    turn = second.turn(10)
    assert turn.cycle.leading
    assert turn.decision.actions == (), "it knows what is on its way"
    assert WEST.name in turn.decision.memory.resizes
    assert stage.sizes() == {WEST.name: 2}


def test_an_event_tells_a_pod_why_it_waits(on: Callable[..., Stage]) -> None:
    stage = on(make.group(max=1))
    stage.pods(2)
    stage.turn()
    notes = {
        each["regarding"]["name"]: each["note"]
        for (kind, _, _), each in stage.api.objects.items()
        if kind.endswith("/events")
    }
    assert set(notes) == {"work-0", "work-1"}
    assert sum("start" in note for note in notes.values()) == 1


def test_a_machine_that_its_group_ends_is_emptied_and_let_go(stage: Stage) -> None:
    stage.api.put(JOBS, apiobjects.job(completionMode="NonIndexed"))
    stage.pods(1, owner=apiobjects.owner("Job", "train"))
    stage.turn()
    (machine,) = stage.boot()
    stage.schedule()
    stage.turn(10)
    stage.aws.lifecycle(WEST, machine, "Terminating:Wait")
    stage.turn(10)
    told = stage.api.get("/api/v1/pods", "work-0", "user-ada")
    if told is not None:  # its kubelet has not ended it yet
        assert "causeway.dev/ends-at" in told["metadata"]["annotations"]
        stage.finish("work-0")
    for _ in range(3):
        stage.turn(31)
    assert stage.aws.instances(WEST) == []
    assert "CompleteLifecycleAction" in stage.aws.writes()
    stage.silence()
    stage.turn(130)
    assert stage.api.get(NODES, machine) is None


def test_a_size_that_somebody_changes_meanwhile_is_theirs(stage: Stage) -> None:
    stage.turn()
    stage.pods(2)
    stage.first.meanwhile(lambda: stage.aws.group(WEST).set_desired_capacity(1))
    turn = stage.turn(10)
    assert turn.statuses == {WEST.name: "stale"}
    assert stage.sizes() == {WEST.name: 1}
    assert WEST.name not in stage.first.loop.memory.resizes, "it was none of ours"
    stage.turn(10)
    assert stage.sizes() == {WEST.name: 2}


def test_32_above_45_percent_unready_nothing_is_written(stage: Stage) -> None:
    stage.pods(8)
    stage.turn()
    stage.boot()
    stage.schedule()
    stage.turn(10)
    writes = len(stage.aws.writes())
    stage.silence(*stage.nodes()[:4])
    stage.pods(2, "more")
    turn = stage.turn(10)
    assert turn.decision.stopped == "4 of 8 nodes are unready"
    for _ in range(3):
        stage.turn(700)
    assert len(stage.aws.writes()) == writes
    assert stage.sizes() == {WEST.name: 8}


def test_33_what_cannot_be_remembered_is_not_done(stage: Stage) -> None:
    stage.turn()
    stage.pods(2)
    fault = stage.api.fail("*", "/configmaps", code=403, times=1000)
    for _ in range(2):
        assert "403" in str(stage.turn(10).cycle.error)
    assert stage.aws.writes() == []
    fault.times = 0
    stage.turn(10)
    assert stage.sizes() == {WEST.name: 2}


def test_33_watches_that_are_cut_and_versions_that_are_too_old(stage: Stage) -> None:
    stage.turn()
    for number in range(3):
        stage.api.cut_watches()
        stage.api.compact()
        stage.pods(1, f"work-{number}")
        assert stage.turn(10).cycle.error is None
    assert stage.sizes() == {WEST.name: 3}
