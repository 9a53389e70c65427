"""Pools with instances at work: renamed, taken out of a region and a zone, moved to another placement group.

Real Terraform on an embedded AWS of two regions, driven as a person does: two applies and six plans, two
minutes of CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from invoking import Project, on_embedded_aws
from permissions.recorded import recording
from settings import forget_settings

from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.localaws import Server

BEFORE = """\
version: 1
name: tiny
domain: tiny.internal
aws: {embedded: true}
network: {interconnect: transit-gateway}
kubernetes: {control_plane: {count: 1}}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a, us-west-2b], kms_key: KEY}
  us-east-1: {kind: aws, zones: [use1-az6]}
images: {cpu: {}}
pools:
  work: {image: cpu, instance_types: [m6i.large], regions: {us-west-2: {max: 4}, us-east-1: {max: 4}}}
  tight:
    image: cpu
    instance_types: [m6i.large]
    placement_group: cluster
    regions: {us-west-2: {max: 4, zones: [us-west-2a]}}
  old: {image: cpu, instance_types: [m5.large], launch: configuration, regions: {us-east-1: {max: 1}}}
"""
RENAMED = BEFORE.replace("  work: {", "  batch: {")
EDITED = (
    RENAMED.replace("  batch: {", "  batch: {renamed_from: work, ")
    .replace(", us-east-1: {max: 4}}}", "}}")
    .replace("placement_group: cluster", "placement_group: spread")
    .replace("[us-west-2a, us-west-2b]", "[us-west-2a]")
)
WORK = "tiny-us-west-2-work"
GROUP = "aws_autoscaling_group.this"
WEST = f'module.us_west_2.module.node_pool["work"].{GROUP}'
EAST = f'module.us_east_1.module.node_pool["work"].{GROUP}'
LOAD_BALANCER = 'module.us_west_2.module.control_plane["this"].aws_lb.this'
PLACEMENT = 'module.us_west_2.module.node_pool["tight"].aws_placement_group.this["cluster"]'


@dataclass(frozen=True)
class Lab:
    project: Project
    server: Server
    aws: Aws
    key: str
    """A customer-managed key."""

    def invoke(self, *words: str, code: int = 0) -> tuple[str, str]:
        return self.project.invoke(*words, code=code)

    def plan(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.invoke("plan", "--json", *words)[0])
        return found

    def spec(self, text: str) -> None:
        self.project.write(text.replace("KEY", self.key))

    def instances(self, region: str, name: str) -> set[str]:
        groups = self.aws.client("autoscaling", region).describe_auto_scaling_groups(
            AutoScalingGroupNames=[name]
        )["AutoScalingGroups"]
        return {each["InstanceId"] for group in groups for each in group["Instances"]}

    def grow(self, region: str, name: str, count: int, zone: str = "") -> set[str]:
        """To so many instances; the new ones in this zone."""
        client = self.aws.client("autoscaling", region)
        [group] = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        all_of_it, before = group["VPCZoneIdentifier"], self.instances(region, name)
        subnets = self.aws.client("ec2", region).describe_subnets(SubnetIds=all_of_it.split(","))["Subnets"]
        [only] = [each["SubnetId"] for each in subnets if each["AvailabilityZone"] == zone] or [all_of_it]
        client.update_auto_scaling_group(
            AutoScalingGroupName=name, MaxSize=4, DesiredCapacity=count, VPCZoneIdentifier=only
        )
        client.update_auto_scaling_group(AutoScalingGroupName=name, VPCZoneIdentifier=all_of_it)
        return self.instances(region, name) - before


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    forget_settings(monkeypatch)
    with on_embedded_aws(tmp_path, "tiny", BEFORE) as (project, server):
        aws = Aws(localaws.environment(server, "us-west-2"))
        key = aws.client("kms", "us-west-2").create_key()["KeyMetadata"]["Arn"]
        lab = Lab(project, server, aws, key)
        lab.spec(BEFORE)
        yield lab


def test_instances_at_work_outlive_edits_of_their_pool(project: Lab, request: pytest.FixtureRequest) -> None:
    """What it is made of also needs the rarer statements of the shipped policies."""
    update = request.config.getoption("--update-golden")
    with recording(project.server, "tiny", update=update):
        project.invoke("apply", "--yes")
    networks = json.loads(project.invoke("outputs", "--json")[0])["networks"]
    assert networks["us-east-1"]["zones"] == {"use1-az6": "us-east-1a"}
    west = project.grow("us-west-2", WORK, 3, "us-west-2a")
    (east,) = project.grow("us-east-1", "tiny-us-east-1-work", 1)
    (tight,) = project.grow("us-west-2", "tiny-us-west-2-tight", 1, "us-west-2a")
    (far,) = project.grow("us-west-2", WORK, 4, "us-west-2b")
    assert len(west) == 3

    # Renamed without a word: the groups and what is in them are named, and stay.
    project.spec(RENAMED)
    planned = project.plan()
    assert set(planned["protected"]) == {WEST, EAST}
    losses = {one["address"]: one["loss"] for one in planned["changes"]}
    assert all(each in losses[WEST] for each in {far, *west})
    assert east in losses[EAST]
    assert "renamed_from: work" in losses[WEST]
    assert "invoke pool.drain --env tiny --pool work" in losses[WEST]
    assert "no cluster" in losses[WEST]  # which could say what works on them
    _, said = project.invoke("apply", code=1)
    assert f"--destroy '{WEST}'" in said
    assert f"--destroy '{EAST}'" in said
    assert project.instances("us-west-2", WORK) == {far, *west}

    # Renamed as it should be. Taken out of one region and a zone, another placement group for another pool.
    project.spec(EDITED)
    _, said = project.invoke("plan", code=1)  # it can't leave a zone
    assert f"--destroy '{LOAD_BALANCER}'" in said
    agreed = ("--destroy", LOAD_BALANCER)
    planned = project.plan(*agreed)
    [subnet] = set(planned["protected"]) - {EAST, PLACEMENT, LOAD_BALANCER}
    losses = {one["address"]: one["loss"] for one in planned["changes"]}
    assert "aws_subnet" in subnet
    assert far in losses[subnet]
    assert not any(each in losses[subnet] for each in west)
    zone = ("--pool", "work", "--site", "us-west-2", "--zone", "us-west-2b")
    assert f"invoke pool.drain --env tiny {' '.join(zone)}" in losses[subnet]
    moved = {one["previous_address"]: one["action"] for one in planned["changes"] if one["previous_address"]}
    assert moved[WEST] == "update"
    assert "replace" not in moved.values()
    named = [word for each in (EAST, PLACEMENT, LOAD_BALANCER, subnet) for word in ("--destroy", each)]
    _, said = project.invoke("apply", *named, code=1)
    assert tight in said
    assert far in said
    assert "invoke pool.drain --env tiny --pool tight" in said

    # A drain works for what the spec has no more.
    said, _ = project.invoke("pool.drain", "--pool", "work", "--zone", "us-east-1a", "--yes")
    assert "us-east-1" in said
    assert not project.instances("us-east-1", "tiny-us-east-1-work")
    by_id = "usw2-az1"  # us-west-2b, whose subnet leaves the group before its instances do
    project.invoke("pool.drain", *zone[:-1], by_id, "--yes")
    assert project.instances("us-west-2", WORK) == west
    _, said = project.invoke("pool.drain", "--pool", "work", "--zone", "eu-west-1a", "--yes", code=1)
    assert "us-west-2a" in said
    project.invoke("pool.drain", "--pool", "tight", code=1)  # nobody agreed
    assert project.instances("us-west-2", "tiny-us-west-2-tight") == {tight}
    project.invoke("pool.drain", "--pool", "tight", "--yes")
    assert not project.instances("us-west-2", "tiny-us-west-2-tight")
    _, said = project.invoke("pool.drain", "--pool", "wrok", "--yes", code=1)
    assert "batch" in said

    # What starts between plan and apply is seen.
    assert set(project.plan(*agreed)["protected"]) <= {LOAD_BALANCER}
    (late,) = project.grow("us-east-1", "tiny-us-east-1-work", 1)
    _, said = project.invoke("apply", *agreed, code=1)
    assert late in said
    project.invoke("pool.drain", "--pool", "work", "--site", "us-east-1", "--yes")
    with recording(project.server, "tiny-edited", update=update):
        project.invoke("apply", *agreed)
    assert project.instances("us-west-2", WORK) == west
    [group] = project.aws.client("autoscaling", "us-west-2").describe_auto_scaling_groups(
        AutoScalingGroupNames=[WORK]
    )["AutoScalingGroups"]
    assert {"batch"} == {tag["Value"] for tag in group["Tags"] if tag["Key"] == "pool"}

    # The word may go: the lock file has the name.
    project.spec(EDITED.replace("renamed_from: work, ", ""))
    assert project.plan()["changes"] == []
