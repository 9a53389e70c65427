"""Drains a pool's Auto Scaling groups, or one zone of them: no new instances are launched, and existing ones
are terminated once their work has ended.

The groups are found by their tags, so that a pool already removed from the spec can be drained too. Each is
closed first (minimum 0, maximum at the current size; if one of several zones is drained, its subnets are
removed from the group instead). Then an instance is terminated once no pod works on it, which reduces the
group's size. The autoscaler may do the same concurrently.

https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_TerminateInstanceInAutoScalingGroup.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from infra.catalogue.regions import is_zone_id
from infra.drive.aws import Aws, AwsError, RegionsError, aws_errors, each_region
from infra.errors import DriveError

BEAT: Final = 10.0
"""Seconds between two polls."""

_SUBNETS: Final = ("ec2:DescribeSubnets",)
_ZONES: Final = ("ec2:DescribeAvailabilityZones",)
_NEEDS: Final = (
    "autoscaling:DescribeAutoScalingGroups", "autoscaling:UpdateAutoScalingGroup",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The current state of a pool's Auto Scaling group, or of one zone of it."""

    region: str
    """The AWS region."""
    site: str
    name: str
    min: int
    max: int
    desired: int
    instances: tuple[str, ...]
    """Ids of the instances in the group, or in the zone, in any state."""
    ending: frozenset[str]
    """Those of them that are being terminated."""
    subnets: tuple[str, ...] = ()
    """The subnets in which it launches instances."""
    staying: tuple[str, ...] = ()
    """The remaining subnets if one zone is drained; empty if the whole group is."""

    @property
    def working(self) -> tuple[str, ...]:
        return tuple(each for each in self.instances if each not in self.ending)

    @property
    def is_drained(self) -> bool:
        return not self.instances and (self.subnets == self.staying if self.staying else not self.max)


def groups(aws: Aws, regions: Iterable[str], *, environment: str, pool: str, zone: str = "") -> list[Group]:
    """The groups of a pool, found by our tags; or their part in one zone. Raises ``DriveError`` if AWS
    cannot be queried."""
    wanted = {"environment": environment, "managed-by": "causeway", "pool": pool}

    def look(region: str) -> list[Group]:
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()]
        with aws_errors(f"look for groups of {pool} in {region}", needs=_NEEDS, quoting=True):
            pages = aws.client("autoscaling", region).get_paginator("describe_auto_scaling_groups")
            rows = [row for page in pages.paginate(Filters=filters) for row in page["AutoScalingGroups"]]
        found = [_group(region, row) for row in rows]
        if zone:
            name = _zone_name(aws, region, zone)
            return [_in_zone(aws, one, row, name) for one, row in zip(found, rows, strict=True)]
        return found

    try:
        return [one for found in each_region(regions, look).values() for one in found]
    except RegionsError as problem:
        raise DriveError(str(problem)) from None


def close(aws: Aws, group: Group) -> None:
    """Stop launching instances: set the maximum to the current desired size and the minimum to 0. If one
    zone is drained, remove its subnets."""
    wanted: dict[str, Any] = {"MinSize": 0, "MaxSize": group.desired}
    if group.staying:
        wanted = {"VPCZoneIdentifier": ",".join(group.staying)}
    if group.subnets == group.staying if group.staying else (group.min, group.max) == (0, group.desired):
        return
    with aws_errors(f"make {group.name} in {group.region} smaller", needs=_NEEDS, quoting=True):
        aws.client("autoscaling", group.region).update_auto_scaling_group(
            AutoScalingGroupName=group.name, **wanted
        )


def terminate(aws: Aws, group: Group, instance: str) -> None:
    """Terminate an instance and reduce its group's size. An instance that no longer exists is not an
    error."""
    client = aws.client("autoscaling", group.region)
    for smaller in (True, False):
        try:
            with aws_errors(f"terminate {instance} in {group.region}", needs=_NEEDS, quoting=True):
                client.terminate_instance_in_auto_scaling_group(
                    InstanceId=instance, ShouldDecrementDesiredCapacity=smaller
                )
        except AwsError as problem:
            if "not found" in str(problem).lower():
                return
            if not smaller or "min size" not in str(problem):
                raise
        else:
            return


def drain(
    look: Callable[[], Sequence[Group]],
    aws: Aws,
    work: Callable[[Collection[str]], Mapping[str, Sequence[str]]],
    heard: Callable[[Group, Mapping[str, Sequence[str]]], None],
    *,
    beat: float = BEAT,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Group]:
    """Close the groups, then terminate each instance once ``work`` (instance → pods) has no pods for it;
    returns the groups when they are empty.

    ``heard`` is called with each group whose instances or pods changed. Takes as long as the longest job; if
    interrupted, the groups stay closed, and another run continues.
    """
    said: dict[str, object] = {}
    while True:
        now = list(look())
        for group in now:
            close(aws, group)
        pods = work([each for group in now for each in group.working])
        for group in now:
            mine = {each: pods[each] for each in group.working if pods.get(each)}
            if said.get(group.name) != (group.instances, mine):
                said[group.name] = (group.instances, mine)
                heard(group, mine)
            for each in group.working:
                if each not in mine:
                    terminate(aws, group, each)
        if all(group.is_drained for group in now):
            return now
        sleep(beat)


def _group(region: str, row: Mapping[str, Any]) -> Group:
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}
    return Group(
        region=region,
        site=str(tags.get("site", region)),
        name=str(row["AutoScalingGroupName"]),
        min=int(row["MinSize"]),
        max=int(row["MaxSize"]),
        desired=int(row["DesiredCapacity"]),
        instances=tuple(sorted(each["InstanceId"] for each in row["Instances"])),
        ending=frozenset(
            each["InstanceId"] for each in row["Instances"] if each["LifecycleState"].startswith("Terminat")
        ),
        subnets=tuple(filter(None, str(row.get("VPCZoneIdentifier", "")).split(","))),
    )


def _in_zone(aws: Aws, group: Group, row: Mapping[str, Any], zone: str) -> Group:
    """The part of a group in one zone, given by its name."""
    there = tuple(sorted(one["InstanceId"] for one in row["Instances"] if one["AvailabilityZone"] == zone))
    with aws_errors(f"look for the zones of {group.name} in {group.region}", needs=_SUBNETS, quoting=True):
        asked = aws.client("ec2", group.region).describe_subnets(SubnetIds=list(group.subnets))
    zones = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in asked["Subnets"]}
    staying = tuple(each for each in group.subnets if zones[each] != zone)
    return replace(group, instances=there, staying=staying)


def _zone_name(aws: Aws, region: str, zone: str) -> str:
    """The account's name of a zone, which may be given by its id: groups and instances only have names."""
    if not is_zone_id(zone):
        return zone
    with aws_errors(f"look for the zone {zone} in {region}", needs=_ZONES, quoting=True):
        asked = aws.client("ec2", region).describe_availability_zones(ZoneIds=[zone])
    return str(asked["AvailabilityZones"][0]["ZoneName"])
