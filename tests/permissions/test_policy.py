"""The evaluator: as IAM's own documentation has it, and against the calls that this project got wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from localaws.recording import Recorded
from permissions.iam_requests import requests
from permissions.policy import Request, allowing, read

LAUNCH = "Action=RunInstances&ImageId=ami-03cf127a&SubnetId=subnet-b4112be3&SecurityGroupId.1=sg-b4112be3"
TAGGED = (
    "&TagSpecification.1.ResourceType=instance"
    "&TagSpecification.1.Tag.1.Key=environment&TagSpecification.1.Tag.1.Value=lab"
)


def allowed(request: Request, **statement: Any) -> bool:
    row = {"Sid": "One", "Effect": "Allow", "Action": request.action, "Resource": "*", **statement}
    return bool(allowing(read("policy", json.dumps({"Statement": [row]})), request))


def asked(action: str = "ec2:RunInstances", resource: str = "*", **context: str) -> Request:
    return Request(action, resource, tuple(context.items()))


@pytest.mark.parametrize(
    ("pattern", "action", "fits"),
    [
        ("ec2:RunInstances", "ec2:RunInstances", True),
        ("EC2:runinstances", "ec2:RunInstances", True),
        ("ec2:Run*", "ec2:RunInstances", True),
        ("ec2:Run", "ec2:RunInstances", False),
        ("*", "ec2:RunInstances", True),
    ],
)
def test_actions_are_patterns_without_regard_to_case(pattern: str, action: str, fits: bool) -> None:
    assert allowed(asked(action), Action=pattern) is fits


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("arn:aws:ec2:*:*:volume/*", True),
        ("arn:aws:ec2:*:*:*/*", True),
        ("arn:aws:ec2:us-west-2:12345678901?:volume/*", True),
        ("arn:aws:ec2:us-east-1:*:volume/*", False),
        ("arn:aws:ec2:*:*:Volume/*", False),
        ("arn:aws:ec2:*:*:volume/vol.*", False),
    ],
)
def test_resources_are_patterns_with_regard_to_case(pattern: str, fits: bool) -> None:
    request = asked(resource="arn:aws:ec2:us-west-2:123456789012:volume/vol-b4112be3")
    assert allowed(request, Resource=[pattern]) is fits


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ({"StringEquals": {"aws:RequestTag/environment": "lab"}}, True),
        ({"StringEquals": {"AWS:requesttag/environment": ["other", "lab"]}}, True),
        ({"StringEquals": {"aws:RequestTag/environment": "LAB"}}, False),
        ({"StringEquals": {"aws:ResourceTag/environment": "lab"}}, False),
        ({"StringLike": {"aws:RequestTag/environment": "l*"}}, True),
        ({"Null": {"aws:RequestTag/environment": "false"}}, True),
        ({"Null": {"aws:RequestTag/environment": "true"}}, False),
        ({"Null": {"ec2:CreateAction": "true"}}, True),
        (
            {
                "StringEquals": {"aws:RequestTag/environment": "lab"},
                "Null": {"ec2:CreateAction": "false"},
            },
            False,
        ),
    ],
)
def test_all_conditions_must_hold(condition: Any, fits: bool) -> None:
    assert allowed(asked(**{"aws:RequestTag/environment": "lab"}), Condition=condition) is fits


@pytest.mark.parametrize(
    "statement",
    [{"Effect": "Deny"}, {"NotAction": "ec2:*"}, {"Condition": {"ArnLike": {"aws:SourceArn": "*"}}}],
)
def test_what_it_does_not_know_is_an_error(statement: Any) -> None:
    with pytest.raises(NotImplementedError):
        allowed(asked(), **statement)


def test_a_launch_asks_about_each_resource_with_its_own_tags() -> None:
    call = Recorded("ec2", "us-west-2", "RunInstances", "POST", f"/?\n{LAUNCH}{TAGGED}",
                    {"subnet-b4112be3": {"environment": "lab"}})  # fmt: skip
    place = {"aws:RequestedRegion": "us-west-2"}
    tag, own = {"aws:RequestTag/environment": "lab"}, {"aws:ResourceTag/environment": "lab"}
    account = "arn:aws:ec2:us-west-2:123456789012"
    found = {(one.action, one.resource): dict(one.context) for one in requests(call)}
    assert found == {
        ("ec2:RunInstances", f"{account}:instance/*"): place | tag,
        ("ec2:RunInstances", f"{account}:network-interface/*"): place,
        ("ec2:RunInstances", f"{account}:volume/*"): place,
        ("ec2:RunInstances", "arn:aws:ec2:us-west-2::image/ami-03cf127a"): place,
        ("ec2:RunInstances", f"{account}:subnet/subnet-b4112be3"): place | own,
        ("ec2:RunInstances", f"{account}:security-group/sg-b4112be3"): place,
        ("ec2:CreateTags", f"{account}:instance/*"): place | tag | {"ec2:CreateAction": "RunInstances"},
    }


def test_a_peering_asks_about_the_vpc_on_its_own_side_alone() -> None:
    text = (
        "/?\nAction=CreateVpcPeeringConnection&VpcId=vpc-aaaaaaaa&PeerVpcId=vpc-bbbbbbbb&PeerRegion=eu-west-1"
    )
    call = Recorded("ec2", "us-west-2", "CreateVpcPeeringConnection", "POST", text)
    assert [one.resource.rpartition(":")[2] for one in requests(call)] == [
        "vpc-peering-connection/*",
        "vpc/vpc-aaaaaaaa",
    ]


def test_tags_that_are_taken_away_are_not_those_of_the_request() -> None:
    text = "/?\nAction=DeleteTags&ResourceId.1=vpc-aaaaaaaa&Tag.1.Key=environment&Tag.1.Value=lab"
    call = Recorded(
        "ec2", "us-west-2", "DeleteTags", "POST", text, {"vpc-aaaaaaaa": {"environment": "other"}}
    )
    [one] = requests(call)
    assert dict(one.context) == {
        "aws:RequestedRegion": "us-west-2",
        "aws:ResourceTag/environment": "other",
    }


def test_a_group_needs_what_its_template_would_need() -> None:
    text = "/?\nAction=CreateAutoScalingGroup&AutoScalingGroupName=lab-a&VPCZoneIdentifier=subnet-b4112be3"
    template = {
        "ImageId": "ami-03cf127a",
        "IamInstanceProfile": {"Name": "lab-node"},
        "TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "environment", "Value": "lab"}]}],
    }
    call = Recorded("autoscaling", "us-west-2", "CreateAutoScalingGroup", "POST", text, launches=template)
    found = {(one.action, one.resource.rpartition(":")[2]): dict(one.context) for one in requests(call)}
    assert found["ec2:RunInstances", "volume/*"]["aws:RequestTag/environment"] == "lab"
    assert found["ec2:CreateTags", "volume/*"]["ec2:CreateAction"] == "RunInstances"
    assert "aws:RequestTag/environment" not in found["ec2:RunInstances", "instance/*"]
    assert ("ec2:RunInstances", "subnet/subnet-b4112be3") in found
    assert found["iam:PassRole", "role/lab-node"]["iam:PassedToService"] == "ec2.amazonaws.com"
