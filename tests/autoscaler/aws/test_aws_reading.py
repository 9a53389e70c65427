"""Reading all regions: everything that AWS tells of groups, and what is left when a part is silent."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from autoscaler import make
from autoscaler.embedded import EmbeddedAws
from localaws import faults

from infra.autoscaler.aws import responses
from infra.autoscaler.aws.background_calls import Background, LateError
from infra.autoscaler.aws.clients import Clients, Patience
from infra.autoscaler.aws.reading import Reader, Reading
from infra.autoscaler.config import PricedType

WEST, EAST, EUROPE = (make.group(site) for site in ("us-west-2", "us-east-1", "eu-west-1"))
SHORT = Patience(connect=1.0, read=2.0, attempts=2)
NO_CAPACITY = (
    "We currently do not have sufficient p3.8xlarge capacity in zones with support for 'gp3' volumes."
)


_CLIENTS: dict[tuple[str, Patience], Clients] = {}
"""Making clients takes longer than all that they are asked here."""


def reader(*groups: Any, deadline: float = 10.0, patience: Patience = SHORT, **more: Any) -> Reader:
    where = os.environ["AWS_ENDPOINT_URL"], patience
    clients = _CLIENTS.setdefault(where, Clients(patience))
    return Reader(make.config(*groups), clients, deadline=deadline, **more)


def test_a_group_with_all_that_is_told_of_it(aws: EmbeddedAws) -> None:
    group = make.group(
        types=(make.P3_TYPE, PricedType("p3.16xlarge", 2, 64, 24.48, 7.3, "p", "p")), min=1, max=9
    )
    aws.make(group, desired=2)
    aws.failed(group, NO_CAPACITY, start=time.time() + 1, Details='{"Availability Zone": "us-west-2b"}')
    reading = reader(group).read()
    assert reading.errors == {}
    (state,) = reading.groups.values()
    assert (state.name, state.region) == (group.name, "us-west-2")
    assert (state.desired, state.min, state.max) == (2, 1, 9)
    assert state.suspended == ("AZRebalance",)
    assert state.protects
    assert state.hooks == ("drain",)
    assert not state.deleting
    assert [each.id for each in state.instances] == aws.instances(group)
    one = state.instances[0]
    assert (one.type, one.lifecycle, one.weight, one.protected) == ("p3.8xlarge", "InService", 1, True)
    assert one.zone.startswith("us-west-2")
    assert one.launched == pytest.approx(time.time(), abs=60)
    assert one.state == "running"
    failed, *launched = state.activities
    assert (failed.status, failed.message, failed.zone) == ("Failed", NO_CAPACITY, "us-west-2b")
    assert {each.status for each in launched} == {"Successful"}


def messages(reading: Reading) -> list[str]:
    """Of the first region's activities."""
    return [activity.message for activity in reading.groups[WEST.name].activities]


def test_17_activities_that_age_out_are_harmless(aws: EmbeddedAws) -> None:
    now = [time.time()]
    aws.make(WEST)
    for number in range(250):
        aws.failed(WEST, f"number {number}", start=now[0] - (250 - number) * 86_400)
    aws.failed(WEST, NO_CAPACITY, start=now[0] - 1)
    reading = reader(WEST, clock=lambda: now[0])
    assert messages(reading.read()) == [NO_CAPACITY]
    assert Counter(action for _, action in aws.calls)["DescribeScalingActivities"] == 2
    aws.group(WEST).activities.clear()
    assert messages(reading.read()) == [NO_CAPACITY], "it was so, whatever AWS tells now"
    now[0] += 4 * 3600
    assert messages(reading.read()) == []


def test_activities_that_are_known_are_not_read_again(aws: EmbeddedAws) -> None:
    aws.make(WEST)
    now = time.time()
    slow = "a launch that takes long"
    aws.failed(WEST, "", start=now - 900, StatusCode="InProgress", EndTime=None, ActivityId=slow)
    for number in range(350):
        aws.failed(WEST, f"number {number}", start=now - number)
    reading = reader(WEST)

    def calls() -> tuple[int, int]:
        aws.calls.clear()
        count = len(messages(reading.read()))
        return count, Counter(action for _, action in aws.calls)["DescribeScalingActivities"]

    assert calls() == (351, 4)
    assert calls() == (351, 2), "the one in progress may be over any time"
    aws.failed(WEST, NO_CAPACITY, start=now + 1)
    assert calls() == (352, 2)
    (row,) = [each for each in aws.group(WEST).activities if each["ActivityId"] == slow]
    row.update(StatusCode="Failed", StatusMessage="after all", EndTime=row["StartTime"])
    assert calls() == (352, 4), "it has moved behind all others"
    assert "after all" in messages(reading.read())
    assert calls() == (352, 1)


def test_pages_of_groups_and_of_activities(aws: EmbeddedAws) -> None:
    groups = [make.group(pool=f"pool-{number:03}") for number in range(120)]
    aws.make(*groups[::40], make.group(pool="somebody-elses"))
    now = time.time()
    for number in range(250):
        aws.failed(groups[number % 3 * 40], f"number {number}", start=now - number)
    reading = reader(*groups).read()
    assert set(reading.groups) == {each.name for each in groups[::40]}
    assert sum(len(each.activities) for each in reading.groups.values()) == 250
    first = reading.groups[groups[0].name].activities
    assert first[0].message == "number 0", "the newest comes first"
    calls = Counter(action for _, action in aws.calls)
    assert calls["DescribeAutoScalingGroups"] == 3
    assert calls["DescribeScalingActivities"] == 3
    assert "invoke apply" in reading.errors[f"aws/us-west-2/{groups[1].name}"]
    assert len(reading.errors) == 117


def test_a_group_without_our_tag_is_left_alone(aws: EmbeddedAws) -> None:
    aws.make(WEST, cluster="another")
    aws.make(EAST, cluster=None)
    reading = reader(WEST, EAST).read()
    assert reading.groups == {}
    assert {*reading.errors} == {f"aws/us-west-2/{WEST.name}", f"aws/us-east-1/{EAST.name}"}
    assert "another" in reading.errors[f"aws/us-west-2/{WEST.name}"]


def test_instances_are_asked_for_once_and_those_that_do_not_run_each_time(aws: EmbeddedAws) -> None:
    group = make.group(on_demand_percent=0)
    aws.make(group, desired=3)
    first, second, third = aws.instances(group)
    moto = {each.id: each for each in aws.ec2("us-west-2").all_instances()}
    moto[first].lifecycle = "spot"
    reading = reader(group)
    before = {each.id: each for each in reading.read().groups[group.name].instances}
    assert [before[each].spot for each in (first, second, third)] == [True, False, False]
    aws.calls.clear()
    reading.read()
    assert Counter(action for _, action in aws.calls)["DescribeInstances"] == 1
    moto[second]._state.name = "shutting-down"
    states = {each.id: each for each in reading.read().groups[group.name].instances}
    assert (states[second].state, states[second].leaving) == ("shutting-down", True)
    moto[second]._state.name = "terminated"
    moto[third]._state.name = "stopped"
    states = {each.id: each for each in reading.read().groups[group.name].instances}
    assert [states[each].state for each in (first, second, third)] == ["running", "terminated", "stopped"]
    assert states[first].launched == before[first].launched
    for reservation in aws.ec2("us-west-2").reservations.values():
        reservation.instances = [each for each in reservation.instances if each.id != second]
    states = {each.id: each for each in reading.read().groups[group.name].instances}
    assert states[second].state == "terminated", "EC2 forgot it"


def test_spot_interruptions_and_prices(aws: EmbeddedAws) -> None:
    kind = PricedType("m5.large", 1, 2, 0.096, 0.04, "p", "p")  # whose prices moto knows
    group = make.group(on_demand_percent=0, types=(kind,))
    aws.make(group, desired=2)
    marked, other = aws.instances(group)
    noticed = float(int(time.time()) - 30)
    aws.interrupt(group, marked, noticed)
    reading = reader(group).read()
    assert reading.errors == {}
    instances = {each.id: each for each in reading.groups[group.name].instances}
    assert instances[marked].interrupted == noticed + 120
    assert instances[other].interrupted is None
    assert reading.prices == {f"{zone}/m5.large": 0.00001 for zone in group.zones}, "moto's only price"


def test_who_buys_on_demand_alone_asks_for_no_spot(aws: EmbeddedAws) -> None:
    aws.make(WEST)
    reader(WEST).read()
    assert not {"DescribeSpotInstanceRequests", "DescribeSpotPriceHistory"} & {
        action for _, action in aws.calls
    }


def test_hooks_and_prices_are_asked_now_and_then(aws: EmbeddedAws) -> None:
    group = make.group(on_demand_percent=0)
    aws.make(group)
    now = [1_000_000.0]
    reading = reader(group, clock=lambda: now[0])
    counts = []
    for passed in (0, 10, 400, 800):
        aws.calls.clear()
        now[0] = 1_000_000.0 + passed
        assert reading.read().groups[group.name].hooks == ("drain",)
        calls = Counter(action for _, action in aws.calls)
        counts.append((calls["DescribeLifecycleHooks"], calls["DescribeSpotPriceHistory"]))
    assert counts == [(1, 1), (0, 0), (0, 1), (1, 1)]


def test_19_a_region_that_refuses_blocks_no_other(aws: EmbeddedAws) -> None:
    aws.make(WEST, EAST, EUROPE)
    aws.order(
        faults.Fault(
            "DescribeAutoScalingGroups", 9, region="us-west-2", status=403, code="AccessDenied", message="no"
        )
    )
    reading = reader(WEST, EAST, EUROPE).read()
    assert set(reading.groups) == {EAST.name, EUROPE.name}
    assert [*reading.errors] == ["aws/us-west-2"]
    assert reading.errors["aws/us-west-2"].startswith("AccessDenied: ")


@pytest.mark.parametrize(
    ("action", "part"),
    [
        ("DescribeScalingActivities", "activities"),
        ("DescribeInstances", "instances"),
        ("DescribeSpotInstanceRequests", "spot"),
        ("DescribeSpotPriceHistory", "prices"),
        ("DescribeLifecycleHooks", "hooks"),
    ],
)
def test_a_part_that_fails_leaves_the_rest(aws: EmbeddedAws, action: str, part: str) -> None:
    group = make.group(on_demand_percent=0)
    aws.make(group, desired=1)
    aws.order(faults.refused(action, "UnauthorizedOperation", "You are not authorized. " + "x" * 3000))
    reading = reader(group).read()
    assert set(reading.groups) == {group.name}
    assert len(reading.groups[group.name].instances) == 1
    assert reading.groups[group.name].hooks == ("drain",)
    assert set(reading.errors) == {f"aws/us-west-2/{part}"}
    why = reading.errors[f"aws/us-west-2/{part}"]
    assert why.startswith("UnauthorizedOperation: ")
    assert len(why) < 400


def test_throttling_is_tried_again_and_then_said(aws: EmbeddedAws) -> None:
    aws.make(WEST)
    patient = reader(WEST, patience=Patience(1.0, 2.0, attempts=3))
    aws.order(faults.throttling("DescribeAutoScalingGroups", 2))
    assert patient.read().errors == {}
    aws.order(faults.throttling("DescribeAutoScalingGroups", 3))
    reading = patient.read()
    assert reading.errors["aws/us-west-2"].startswith("RequestLimitExceeded: ")
    assert patient.read().errors == {}


def test_a_region_where_nobody_listens(aws: EmbeddedAws) -> None:
    aws.make(WEST)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refused
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": address}):
            reading = reader(WEST).read()
    assert reading.groups == {}
    assert "EndpointConnectionError" in reading.errors["aws/us-west-2"]


def test_a_region_that_never_answers_is_waited_for_once(aws: EmbeddedAws) -> None:
    aws.make(WEST, EAST)
    patience = Patience(1.0, 30.0, 1)
    reader(WEST, EAST, patience=patience, deadline=60.0).read()  # clients are there then
    aws.calls.clear()
    reading = reader(WEST, EAST, deadline=3.0, patience=patience)
    with aws.held("us-west-2", "DescribeAutoScalingGroups"):
        for _ in range(2):
            found = reading.read()
            assert ([*found.groups], [*found.errors]) == ([EAST.name], ["aws/us-west-2"])
        assert Counter(aws.calls)["us-west-2", "DescribeAutoScalingGroups"] == 1, "it is still on its way"
    for thread in threading.enumerate():
        if thread.name.startswith("aws us-west-2/"):
            thread.join()
    found = reading.read()
    assert found.errors == {}
    assert set(found.groups) == {WEST.name, EAST.name}


def test_what_was_late_is_not_waited_for_again() -> None:
    background = Background(deadline=0.2)
    held = threading.Event()

    def round_of_calls() -> dict[Any, Any]:
        return background.gather({
            ("west", "groups"): background.start(("west", "groups"), lambda: held.wait(30)),
            ("east", "groups"): background.start(("east", "groups"), lambda: "east"),
        })  # fmt: skip

    first = round_of_calls()
    assert isinstance(first["west", "groups"], LateError)
    assert first["east", "groups"] == "east"
    assert isinstance(round_of_calls()["west", "groups"], LateError)
    held.set()
    for thread in threading.enumerate():
        if thread.name == "aws west/groups":
            thread.join()
    assert round_of_calls() == {("west", "groups"): True, ("east", "groups"): "east"}


def test_an_odd_row_hides_no_group() -> None:
    state = responses.group(
        {
            "AutoScalingGroupName": "a",
            "DesiredCapacity": "3",
            "Status": "Delete in progress",
            "Instances": [{"InstanceId": "i-1", "WeightedCapacity": "much", "HealthStatus": "UNHEALTHY"}],
        },
        "us-west-2",
    )
    assert (state.desired, state.max, state.deleting) == (3, 0, True)
    assert (state.instances[0].weight, state.instances[0].healthy) == (1, False)
    assert responses.activity({"Details": "no json"}).zone == ""
    assert responses.activity({"Details": '["a"]'}).zone == ""
    assert responses.activity({}).start == 0.0


def test_answers_that_make_no_sense_are_their_groups_alone(aws: EmbeddedAws) -> None:
    aws.make(WEST, EAST)
    with mock.patch.object(responses, "group", side_effect=[TypeError("odd"), mock.DEFAULT]):
        reading = reader(WEST, EAST).read()
    assert len(reading.groups) == 1
    (why,) = reading.errors.values()
    assert why.endswith("TypeError: odd")
