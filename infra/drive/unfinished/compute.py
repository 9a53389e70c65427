"""Pools and what nodes are given: found by name, which is taken as soon as the creation has begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from infra.drive.aws import Aws
from infra.drive.unfinished.model import Creation, Look, Seen
from infra.drive.unfinished.network import tagged


def _launch_templates(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = _by_name(those)
    pages = aws.client("ec2", region).get_paginator("describe_launch_templates")
    for page in pages.paginate(Filters=[{"Name": "launch-template-name", "Values": sorted(named)}]):
        for each in page["LaunchTemplates"]:
            yield named[each["LaunchTemplateName"]], Seen(each["LaunchTemplateId"], tagged(each.get("Tags")))


def _placement_groups(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = _by_name(those)
    filters = [
        {"Name": "group-name", "Values": sorted(named)},
        {"Name": "state", "Values": ["pending", "available"]},
    ]
    for each in aws.client("ec2", region).describe_placement_groups(Filters=filters)["PlacementGroups"]:
        yield named[each["GroupName"]], Seen(each["GroupName"], tagged(each.get("Tags")))


def _groups(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = _by_name(those)
    pages = aws.client("autoscaling", region).get_paginator("describe_auto_scaling_groups")
    for page in pages.paginate(AutoScalingGroupNames=sorted(named)):
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
    # Asked by name, it would refuse as soon as one is missing.
    pages = client.get_paginator(operation).paginate()
    found = {each[arn]: each[name] for page in pages for each in page[rows] if each[name] in named}
    if found:
        for each in client.describe_tags(ResourceArns=sorted(found))["TagDescriptions"]:
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
