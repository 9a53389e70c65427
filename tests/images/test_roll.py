"""Instance refreshes of Auto Scaling groups, on the embedded AWS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from embedded_aws import embedded

from infra.drive import localaws, roll
from infra.drive.aws import Aws
from infra.drive.images.usage import uses
from infra.drive.roll import Group, Preferences, Refresh
from infra.errors import DriveError, UsageError

WEST, EAST = "us-west-2", "us-east-1"
OLD, NEW = "ami-00000000000000001", "ami-00000000000000002"


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    with embedded(tmp_path / "aws") as server:
        yield Aws({**os.environ, **localaws.environment(server, WEST)})


def pool(aws: Aws, region: str, size: int = 4, name: str = "tiny-gpu") -> Group:
    """A group of instances of the old image, whose launch template says the new one since."""
    ec2, scaling = aws.client("ec2", region), aws.client("autoscaling", region)
    template = ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": OLD, "InstanceType": "g5.xlarge"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    scaling.create_auto_scaling_group(
        AutoScalingGroupName=name, MinSize=0, MaxSize=9, DesiredCapacity=size,
        AvailabilityZones=[f"{region}a"], LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
    )  # fmt: skip
    ec2.create_launch_template_version(
        LaunchTemplateId=template,
        SourceVersion="1",
        LaunchTemplateData={"ImageId": NEW, "InstanceType": "g5.xlarge"},
    )
    return Group(region, name, NEW)


def launch_new(aws: Aws, *groups: Group) -> None:
    """What `invoke apply` does."""
    for group in groups:
        aws.client("autoscaling", group.region).update_auto_scaling_group(
            AutoScalingGroupName=group.name,
            LaunchTemplate={"LaunchTemplateName": group.name, "Version": "2"},
        )


def instances(aws: Aws, region: str) -> list[str]:
    """The images that run."""
    return [use.ami for use in uses(aws, [region])[region] if use.kind == "instance"]


def states(aws: Aws, group: Group) -> list[dict[str, Any]]:
    groups = aws.client("autoscaling", group.region).describe_auto_scaling_groups()["AutoScalingGroups"]
    members: list[dict[str, Any]] = groups[0]["Instances"]
    return members


def test_every_region_rolls(aws: Aws) -> None:
    groups = [pool(aws, WEST), pool(aws, EAST, 2)]
    launch_new(aws, *groups)
    assert set(instances(aws, WEST)) == {OLD}
    heard: list[Refresh] = []
    ended = roll.follow(
        aws, roll.start(aws, groups, Preferences(min_healthy=50), "apply"), heard.append, sleep=lambda _: None
    )
    assert [one.status for one in ended] == ["Successful", "Successful"]
    assert instances(aws, WEST) == [NEW] * 4
    assert instances(aws, EAST) == [NEW] * 2
    west = [one.percent for one in heard if one.group.region == WEST]
    assert west == sorted(west)
    assert west[-1] == 100

    before = {state["InstanceId"] for state in states(aws, groups[0])}
    again = roll.start(aws, groups, Preferences(), "apply")
    roll.follow(aws, again, heard.append, sleep=lambda _: None)
    assert {state["InstanceId"] for state in states(aws, groups[0])} == before, "what matches is skipped"


def test_one_that_is_under_way_is_followed_and_can_be_cancelled(aws: Aws) -> None:
    group = pool(aws, WEST)
    launch_new(aws, group)
    with pytest.raises(DriveError, match=group.name):
        roll.look(aws, group)
    (first,) = roll.start(aws, [group], Preferences(), "apply")
    (second,) = roll.start(aws, [group], Preferences(), "apply")
    assert second.id == first.id
    assert roll.cancel(aws, [group]) == [group]
    assert roll.cancel(aws, [group]) == []
    assert roll.look(aws, group, first.id).status == "Cancelled"
    assert set(instances(aws, WEST)) == {OLD, NEW}, "what was replaced stays so"


@pytest.mark.parametrize(("protected", "left"), [("wait", 1), ("ignore", 1), ("refresh", 0)])
def test_instances_at_work(aws: Aws, protected: roll.Protected, left: int) -> None:
    group = pool(aws, WEST)
    busy = states(aws, group)[0]["InstanceId"]
    aws.client("autoscaling", WEST).set_instance_protection(
        AutoScalingGroupName=group.name, InstanceIds=[busy], ProtectedFromScaleIn=True
    )
    launch_new(aws, group)
    preferences = Preferences(min_healthy=0, max_healthy=100, protected=protected)
    (begun,) = roll.start(aws, [group], preferences, "apply")
    for _ in range(5):
        begun = roll.look(aws, group, begun.id)
    assert instances(aws, WEST).count(OLD) == left
    assert begun.ended is (protected != "wait")
    assert ("protected" in begun.reason) is (protected == "wait")


@pytest.mark.parametrize(
    ("preferences", "said"),
    [
        ({"min_healthy": 101}, "--min-healthy"),
        ({"min_healthy": 0, "max_healthy": 150}, "100"),
        ({"min_healthy": 100, "max_healthy": 100}, "replaced"),
        ({"checkpoints": (50, 20)}, "checkpoints"),
    ],
)
def test_preferences_that_aws_would_refuse(preferences: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Preferences(**preferences)


def test_checkpoints_end_with_all() -> None:
    asked = Preferences(checkpoints=(10, 50)).as_aws()
    assert asked["CheckpointPercentages"] == [10, 50, 100]
    assert asked["ScaleInProtectedInstances"] == "Refresh"
