"""The whole controller against a Kubernetes API and an AWS, both over HTTP: what goes wrong in earnest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autoscaler import apiobjects, make
from autoscaler.controller_stage import JOBS, NODES, Stage, staged
from autoscaler.embedded import EmbeddedAws
from localaws import faults
from waiting import until

WEST, EAST = make.group(), make.group("us-east-1")


@pytest.fixture
def stage(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Stage]:
    with staged(aws, tmp_path) as stage:
        yield stage


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


def test_14_no_capacity_moves_the_remainder_in_the_loop_that_sees_it(stage: Stage) -> None:
    no_capacity = faults.no_capacity("p3.8xlarge", times=faults.FOREVER)
    stage.aws.order(dataclasses.replace(no_capacity, region=WEST.region))
    stage.pods(4)
    stage.turn()
    assert stage.sizes() == {WEST.name: 4}
    turn = stage.turn(10)
    assert turn.statuses == {WEST.name: "done", EAST.name: "done"}
    assert stage.sizes() == {EAST.name: 4}
    assert len(stage.aws.instances(EAST)) == 4
    assert turn.decision.figures.failures[WEST.name] >= 1
    assert stage.turn(10).decision.actions == ()


def idle_machine(stage: Stage) -> str:
    """A machine whose pod has ended."""
    (pod,) = stage.pods(1)
    stage.turn()
    (machine,) = stage.boot()
    stage.schedule()
    stage.turn(10)
    stage.finish(pod)
    return machine


def test_22_an_idle_machine_is_tainted_looked_at_again_and_ended(stage: Stage) -> None:
    machine = idle_machine(stage)
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
    machine = idle_machine(stage)
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


def test_36_events_tell_pods_what_becomes_of_them(stage: Stage) -> None:
    stage.pods(1, "fits")
    stage.pods(1, "large", gpus=8)
    stage.turn()
    reasons = {
        event["regarding"]["name"]: event["reason"]
        for (kind, _, _), event in stage.api.objects.items()
        if kind.endswith("/events")
    }
    assert reasons == {"fits-0": "MachineStarts", "large-0": "FitsNowhere"}


def test_a_machine_that_its_group_ends_is_emptied_and_let_go(stage: Stage) -> None:
    stage.api.put(JOBS, apiobjects.job(completionMode="NonIndexed"))
    stage.pods(1, owner=apiobjects.owner("Job", "train"))
    stage.turn()
    (machine,) = stage.boot()
    stage.schedule()
    stage.turn(10)
    stage.aws.lifecycle(WEST, machine, "Terminating:Wait")
    stage.turn(10)
    pod = stage.api.get("/api/v1/pods", "work-0", "user-ada")
    if pod is not None:  # its kubelet has not ended it yet
        assert "causeway.dev/ends-at" in pod["metadata"]["annotations"]
        stage.finish("work-0")
    for _ in range(3):
        stage.turn(31)
    assert stage.aws.instances(WEST) == []
    assert "CompleteLifecycleAction" in stage.aws.writes()
    stage.silence()
    stage.turn(130)
    assert stage.api.get(NODES, machine) is None
