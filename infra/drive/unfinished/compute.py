"""Finds node pools and their resources by name, which is taken as soon as the creation has begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from infra.drive.aws import Aws
from infra.drive.undeclared.model import chunks, pages
from infra.drive.unfinished.model import Creation, Look, Seen
from infra.drive.unfinished.network import tagged

_NAMES: Final = 50
"""Maximum group names in one call (Auto Scaling API Reference)."""
_ARNS: Final = 20
"""Maximum resources in one call (Elastic Load Balancing API Reference, DescribeTags)."""


def _launch_templates(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = _by_name(those)
    client = aws.client("ec2", region)
    for names in chunks(named):
        asked = [{"Name": "launch-template-name", "Values": names}]
        size = {"PageSize": len(names)}
        for page in pages(client, "describe_launch_templates", Filters=asked, PaginationConfig=size):
            for each in page["LaunchTemplates"]:
                seen = Seen(each["LaunchTemplateId"], tagged(each.get("Tags")))
                yield named[each["LaunchTemplateName"]], seen


def _placement_groups(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = _by_name(those)
    for names in chunks(named):
        filters = [
            {"Name": "group-name", "Values": names},
            {"Name": "state", "Values": ["pending", "available"]},
        ]
        for each in aws.client("ec2", region).describe_placement_groups(Filters=filters)["PlacementGroups"]:
            yield named[each["GroupName"]], Seen(each["GroupName"], tagged(each.get("Tags")))


def _groups(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = _by_name(those)
    client = aws.client("autoscaling", region)
    for names in chunks(named, _NAMES):
        for page in pages(client, "describe_auto_scaling_groups", AutoScalingGroupNames=names):
            for each in page["AutoScalingGroups"]:
                if "Status" not in each:  # "Delete in progress"
                    name = each["AutoScalingGroupName"]
                    yield named[name], Seen(name, tagged(each["Tags"]))


def _balancers(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    yield from _balancing(
        aws, region, those, "describe_load_balancers", "LoadBalancers", "LoadBalancerName", "LoadBalancerArn"
    )


def _target_groups(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    yield from _balancing(
        aws, region, those, "describe_target_groups", "TargetGroups", "TargetGroupName", "TargetGroupArn"
    )


def _balancing(
    aws: Aws, region: str, those: Sequence[Creation], operation: str, rows: str, name: str, arn: str
) -> Iterator[tuple[Creation, Seen]]:
    named = _by_name(those)
    client = aws.client("elbv2", region)
    # With names, the call would fail as soon as one does not exist.
    listed = (each for page in pages(client, operation) for each in page[rows])
    found = {each[arn]: each[name] for each in listed if each[name] in named}
    for arns in chunks(found, _ARNS):
        for each in client.describe_tags(ResourceArns=arns)["TagDescriptions"]:
            yield named[found[each["ResourceArn"]]], Seen(each["ResourceArn"], tagged(each["Tags"]))


def _by_name(those: Sequence[Creation]) -> dict[Any, Creation]:
    return {one.values["name"]: one for one in those if "name" in one.values}


LOOKS: Final[Mapping[str, tuple[Look, tuple[str, ...]]]] = {
    "aws_autoscaling_group": (_groups, ("autoscaling:DescribeAutoScalingGroups",)),
    "aws_launch_template": (_launch_templates, ("ec2:DescribeLaunchTemplates",)),
    "aws_lb": (
        _balancers,
        ("elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeTags"),
    ),
    "aws_lb_target_group": (
        _target_groups,
        ("elasticloadbalancing:DescribeTargetGroups", "elasticloadbalancing:DescribeTags"),
    ),
    "aws_placement_group": (_placement_groups, ("ec2:DescribePlacementGroups",)),
}
