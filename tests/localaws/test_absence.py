"""What the embedded AWS says of something that it does not know yet."""

from __future__ import annotations

import pytest

from infra.localaws.request import Call
from localaws import absence

REGION = "us-west-2"
ELB, EFS = "elasticloadbalancing", "elasticfilesystem"


@pytest.mark.parametrize(
    ("service", "action", "text", "wanted"),
    [
        (ELB, "DescribeTargetGroups", "/?\nTargetGroupArns.member.1=arn:x", "TargetGroupNotFound"),
        (ELB, "DescribeTags", "/?\nResourceArns.member.1=a:listener/net/x", "ListenerNotFound"),
        (EFS, "DescribeMountTargets", "/mount-targets?MountTargetId=fsmt-1\n", "MountTargetNotFound"),
        ("rds", "ListTagsForResource", "/?\nResourceName=arn%3Aaws%3Ards%3A%3A1%3Adb%3Ay",
         "DBInstanceNotFound"),
        ("rds", "DescribeDBParameters", "/?\nDBParameterGroupName=x", "DBParameterGroupNotFound"),
        ("route53", "ListTagsForResource", "/2013-04-01/tags/hostedzone/Z1?\n", "NoSuchHostedZone"),
        ("autoscaling", "DescribeAutoScalingGroups", "/?\nAutoScalingGroupNames.member.1=x", ""),
        ("ec2", "DescribeAddressesAttribute", "/?\nAllocationId.1=eipalloc-12345678",
         "InvalidAllocationID.NotFound"),
        ("none", "DescribeNothing", "/?\n", ""),
    ],
)  # fmt: skip
def test_a_service_says_what_it_does_not_know(service: str, action: str, text: str, wanted: str) -> None:
    assert absence.code(Call(service, REGION, action, text)) == wanted
