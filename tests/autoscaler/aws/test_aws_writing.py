"""Writing to groups: each write looks first, keeps to limits, and may be repeated."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from autoscaler import make
from autoscaler.embedded import EmbeddedAws
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from localaws import faults
from msgspec import structs

from infra.autoscaler.aws.clients import WRITING, Clients, refused
from infra.autoscaler.aws.writing import AwsWriter
from infra.autoscaler.config import PricedType
from infra.autoscaler.decision import Release, Result, SetDesired, Terminate

WEST = make.group(min=1, max=9)
SHORT = structs.replace(WRITING, read=2.0)


@pytest.fixture(scope="module")
def clients(embedded: EmbeddedAws) -> Clients:
    return Clients(SHORT)


@pytest.fixture
def writer(aws: EmbeddedAws, clients: Clients) -> AwsWriter:
    aws.make(WEST, desired=3)
    return AwsWriter(make.config(WEST), clients, sleep=lambda seconds: None)


def resize(was: int, desired: int) -> SetDesired:
    return SetDesired(WEST.name, was, desired, "for a test")


def end(instance: str, *, forced: bool = False) -> Terminate:
    return Terminate(WEST.name, instance, "a-node", "for a test", forced)


def written(result: Result) -> tuple[str, int | None]:
    """What became of a size, and the size where it is not the one that was asked for."""
    return result.status, result.desired


def before(clients: Clients, action: str, happens: Callable[[], object]) -> Any:
    """Let something happen just before a call of ours is sent, once."""
    client = clients.get("autoscaling", WEST.region)
    waiting = [happens]

    def strike(**_: object) -> None:
        if waiting:
            waiting.pop()()

    client.meta.events.register(f"before-call.auto-scaling.{action}", strike, unique_id=action)
    return lambda: client.meta.events.unregister(f"before-call.auto-scaling.{action}", unique_id=action)


def test_a_size_is_set_and_a_second_time_needless(aws: EmbeddedAws, writer: AwsWriter) -> None:
    assert writer.set_desired(resize(3, 7)) == Result("done")
    assert aws.group(WEST).desired_capacity == 7
    assert writer.set_desired(resize(3, 7)).status == "needless"
    assert writer.set_desired(resize(7, 7)).status == "needless"
    assert aws.writes() == ["SetDesiredCapacity"]


def test_20_a_size_never_goes_beyond_the_most(aws: EmbeddedAws, writer: AwsWriter) -> None:
    assert written(writer.set_desired(resize(3, 50))) == ("done", 9)
    assert aws.group(WEST).desired_capacity == 9
    assert writer.set_desired(resize(9, 50)).status == "needless"


def test_a_size_that_somebody_else_changed_is_left(aws: EmbeddedAws, writer: AwsWriter) -> None:
    result = writer.set_desired(resize(5, 7))
    assert result.status == "stale"
    assert aws.writes() == []


def test_18_a_size_never_goes_below_what_is_there(aws: EmbeddedAws, writer: AwsWriter) -> None:
    aws.group(WEST).desired_capacity = 8  # five did not come
    assert written(writer.set_desired(resize(8, 1))) == ("done", 3)
    assert len(aws.instances(WEST)) == 3
    assert writer.set_desired(resize(3, 1)).status == "needless"


def test_18_what_a_group_gives_up_already_is_not_there(aws: EmbeddedAws, writer: AwsWriter) -> None:
    aws.group(WEST).desired_capacity = 8
    aws.lifecycle(WEST, aws.instances(WEST)[0], "Terminating:Wait")
    with mock.patch.object(type(aws.group(WEST)), "set_desired_capacity") as setting:
        assert writer.set_desired(resize(8, 1)).desired == 2
    setting.assert_called_once_with(2)


def test_18_machines_that_come_between_look_and_write_stay(
    aws: EmbeddedAws, writer: AwsWriter, clients: Clients
) -> None:
    group = aws.group(WEST)
    group.desired_capacity = 8

    def two_come() -> None:
        group.replace_autoscaling_group_instances(2, {})
        for state in group.instance_states:
            state.protected_from_scale_in = True

    undo = before(clients, "SetDesiredCapacity", two_come)
    result = writer.set_desired(resize(8, 3))
    undo()
    assert written(result) == ("done", 5)
    assert group.desired_capacity == 5
    assert len(aws.instances(WEST)) == 5


def test_18_a_second_look_that_fails_takes_nothing_back(aws: EmbeddedAws, writer: AwsWriter) -> None:
    aws.group(WEST).desired_capacity = 8
    aws.order(replace(faults.broken("DescribeAutoScalingGroups"), skip=1))
    result = writer.set_desired(resize(8, 3))
    assert result.status == "done"
    assert aws.group(WEST).desired_capacity == 3


def test_weights_count(aws: EmbeddedAws, clients: Clients) -> None:
    group = make.group(types=(PricedType("p3.16xlarge", 2, 64, 24.48, 7.3, "p", "p"),), max=20)
    aws.make(group, desired=6)
    aws.group(group).desired_capacity = 12
    writer = AwsWriter(make.config(group), clients)
    assert writer.set_desired(SetDesired(group.name, 12, 0, "")).desired == 6
    result = writer.terminate(Terminate(group.name, aws.instances(group)[0], "", ""))
    assert result.status == "done"
    assert aws.group(group).desired_capacity == 4
    assert len(aws.instances(group)) == 2


def test_26_what_weighs_more_than_was_asked_for_can_be_ended(aws: EmbeddedAws, clients: Clients) -> None:
    """Asked for one unit, AWS brought a machine of two: one less than nothing is no size."""
    group = make.group(types=(PricedType("p3.16xlarge", 2, 64, 24.48, 7.3, "p", "p"),), max=20)
    aws.make(group, desired=2)
    aws.group(group).desired_capacity = 1
    writer = AwsWriter(make.config(group), clients)
    assert writer.terminate(Terminate(group.name, aws.instances(group)[0], "", "")) == Result("done")
    assert aws.group(group).desired_capacity == 0
    assert aws.instances(group) == []


def test_one_machine_ends_and_its_group_is_smaller(aws: EmbeddedAws, writer: AwsWriter) -> None:
    one, *others = aws.instances(WEST)
    assert writer.ended("us-west-2", one) is False
    assert writer.terminate(end(one)) == Result("done")
    assert aws.group(WEST).desired_capacity == 2
    assert aws.instances(WEST) == others
    assert writer.terminate(end(one)).status == "needless"
    assert aws.group(WEST).desired_capacity == 2
    assert writer.ended("us-west-2", one) is True
    assert writer.ended("us-west-2", "i-00000000000000000") is True


def test_a_machine_that_ends_already_is_not_ended_twice(aws: EmbeddedAws, writer: AwsWriter) -> None:
    one = aws.instances(WEST)[0]
    aws.lifecycle(WEST, one, "Terminating:Wait")
    assert writer.terminate(end(one)).status == "needless"
    assert aws.writes() == []


def test_26_a_group_at_its_least_keeps_its_machines(aws: EmbeddedAws, writer: AwsWriter) -> None:
    aws.group(WEST).min_size = 3
    one = aws.instances(WEST)[0]
    assert writer.terminate(end(one)).status == "refused"
    assert aws.writes() == []
    assert writer.terminate(end(one, forced=True)).status == "done"
    assert one not in aws.instances(WEST)
    assert len(aws.instances(WEST)) == aws.group(WEST).desired_capacity == 3


def test_26_the_least_changes_between_look_and_write(
    aws: EmbeddedAws, writer: AwsWriter, clients: Clients
) -> None:
    one = aws.instances(WEST)[0]
    undo = before(
        clients, "TerminateInstanceInAutoScalingGroup", lambda: setattr(aws.group(WEST), "min_size", 3)
    )
    assert writer.terminate(end(one)).status == "refused"
    undo()
    assert one in aws.instances(WEST)


def test_a_machine_of_another_group_is_left(aws: EmbeddedAws, writer: AwsWriter) -> None:
    other = make.group(pool="other")
    aws.make(other, desired=1)
    assert writer.terminate(end(aws.instances(other)[0])).status == "refused"
    assert aws.writes() == []


def test_a_hook_lets_its_machine_go_once(aws: EmbeddedAws, writer: AwsWriter) -> None:
    one = aws.instances(WEST)[0]
    release = Release(WEST.name, one, "a-node", "drained")
    assert writer.release(release).status == "needless"
    aws.lifecycle(WEST, one, "Terminating:Wait")
    aws.order(
        faults.refused("CompleteLifecycleAction", "ValidationError", "No active Lifecycle Action found")
    )
    assert writer.release(release).status == "needless"
    assert writer.release(release) == Result("done")
    assert writer.release(release).status == "needless"


@pytest.mark.parametrize("cluster", ["another", None])
def test_a_group_of_somebody_else_is_left(aws: EmbeddedAws, clients: Clients, cluster: str | None) -> None:
    group = make.group("us-east-1")
    aws.make(group, cluster=cluster, desired=1)
    writer = AwsWriter(make.config(group), clients)
    assert writer.set_desired(SetDesired(group.name, 1, 2, "")).status == "refused"
    assert writer.terminate(Terminate(group.name, aws.instances(group)[0], "", "")).status == "refused"
    assert aws.writes() == []


def test_a_group_that_is_not_there(aws: EmbeddedAws, clients: Clients) -> None:
    writer = AwsWriter(make.config(WEST), clients)
    assert writer.set_desired(resize(3, 4)).status == "refused"
    unknown = SetDesired("nobody's", 3, 4, "")
    assert writer.set_desired(unknown).status == "refused"


def test_a_refusal_of_aws_is_a_result(aws: EmbeddedAws, writer: AwsWriter) -> None:
    for fault, code in (
        (
            faults.refused("SetDesiredCapacity", "ScalingActivityInProgress", "busy"),
            "ScalingActivityInProgress",
        ),
        (faults.refused("SetDesiredCapacity", "AccessDenied", "User: x may not"), "AccessDenied"),
        (faults.throttling("SetDesiredCapacity", 3), "RequestLimitExceeded"),
    ):
        aws.order(fault)
        result = writer.set_desired(resize(3, 4))
        assert (result.status, result.text.partition(":")[0]) == ("refused", code)
    aws.order(faults.broken("SetDesiredCapacity"))
    assert writer.set_desired(resize(3, 4)).status == "failed"
    assert writer.set_desired(resize(3, 4)) == Result("done")


def test_too_many_calls_are_waited_out(aws: EmbeddedAws, clients: Clients) -> None:
    aws.make(WEST, desired=3)
    pauses: list[float] = []
    writer = AwsWriter(make.config(WEST), clients, sleep=pauses.append)
    aws.order(
        faults.throttling("DescribeAutoScalingGroups", 1),
        faults.throttling("TerminateInstanceInAutoScalingGroup", 2),
    )
    assert writer.terminate(end(aws.instances(WEST)[0])) == Result("done")
    assert pauses == [0.5, 0.5, 1.5]


def test_35_who_has_lost_the_lease_writes_nothing(aws: EmbeddedAws, clients: Clients) -> None:
    aws.make(WEST, desired=3)
    writer = AwsWriter(make.config(WEST), clients, may=lambda: False)
    one = aws.instances(WEST)[0]
    aws.lifecycle(WEST, aws.instances(WEST)[1], "Terminating:Wait")
    release = Release(WEST.name, aws.instances(WEST)[1], "", "drained")
    results = writer.set_desired(resize(3, 4)), writer.terminate(end(one)), writer.release(release)
    assert [each.status for each in results] == ["stale"] * 3
    assert aws.writes() == []


def test_an_end_that_may_have_happened_is_not_asked_for_again(aws: EmbeddedAws, writer: AwsWriter) -> None:
    aws.order(faults.broken("TerminateInstanceInAutoScalingGroup"))
    assert writer.terminate(end(aws.instances(WEST)[0])).status == "failed"
    assert aws.writes() == ["TerminateInstanceInAutoScalingGroup"]


def test_aws_that_does_not_answer_is_a_result(writer: AwsWriter) -> None:
    now = [100.0]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": address}):
            away = AwsWriter(make.config(WEST), Clients(SHORT), clock=lambda: now[0])
            result = away.set_desired(resize(3, 4))
            again = away.set_desired(resize(3, 4))
            now[0] += 6
            later = away.set_desired(resize(3, 4))
            assert away.ended("us-west-2", "i-1") is None
    assert {result.status, again.status} == {"refused"}
    assert (again == result, later == result) == (False, True), "it is left alone for some seconds"


@pytest.mark.parametrize(
    ("problem", "surely_nothing"),
    [
        (ConnectTimeoutError(endpoint_url="http://a"), True),
        (ReadTimeoutError(endpoint_url="http://a"), False),
        (ValueError(), False),
    ],
)
def test_what_surely_did_nothing(problem: Exception, surely_nothing: bool) -> None:
    assert refused(problem) is surely_nothing


def test_a_slow_answer_is_given_up(aws: EmbeddedAws, writer: AwsWriter) -> None:
    aws.order(faults.slow("SetDesiredCapacity", 2.5, times=1))
    result = writer.set_desired(resize(3, 4))
    assert result.status == "failed", "it may come to something yet"
    while aws.group(WEST).desired_capacity != 4:  # it comes to something: not in the test that is next
        time.sleep(0.05)
