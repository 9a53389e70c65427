"""The evaluator and the table of requests: as IAM's documentation has it, and what was wrong before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from localaws.recording import Recorded
from permissions.iam_requests import requests
from permissions.policy import Request, allowing, read

VOLUME = Request(
    "ec2:DeleteVolume",
    "arn:aws:ec2:us-west-2:123456789012:volume/vol-b4112be3",
    (("aws:RequestTag/environment", "lab"),),
)
LAB = {"StringEquals": {"aws:RequestTag/environment": "lab"}}


@pytest.mark.parametrize(
    ("statement", "fits"),
    [
        ({"Action": "EC2:deletevolume"}, True),
        ({"Action": "ec2:Delete*"}, True),
        ({"Action": "ec2:Delete"}, False),
        ({"Resource": "arn:aws:ec2:us-west-2:12345678901?:*/*"}, True),
        ({"Resource": "arn:aws:ec2:us-east-1:*:volume/*"}, False),
        ({"Resource": "arn:aws:ec2:*:*:Volume/*"}, False),
        ({"Resource": "arn:aws:ec2:*:*:volume/vol.*"}, False),
        ({"Condition": LAB}, True),
        ({"Condition": {"StringEquals": {"AWS:requesttag/environment": ["other", "lab"]}}}, True),
        ({"Condition": {"StringEquals": {"aws:RequestTag/environment": "LAB"}}}, False),
        ({"Condition": {"StringEquals": {"aws:ResourceTag/environment": "lab"}}}, False),
        ({"Condition": {"StringLike": {"aws:RequestTag/environment": "l*"}}}, True),
        ({"Condition": {"Null": {"aws:RequestTag/environment": "true"}}}, False),
        ({"Condition": {"Null": {"ec2:CreateAction": "true"}}}, True),
        ({"Condition": {**LAB, "Null": {"ec2:CreateAction": "false"}}}, False),
    ],
)
def test_action_resource_and_all_conditions_decide(statement: Any, fits: bool) -> None:
    assert allowed(statement) is fits


@pytest.mark.parametrize(
    "statement",
    [{"Effect": "Deny"}, {"NotAction": "ec2:*"}, {"Condition": {"ArnLike": {"aws:SourceArn": "*"}}}],
)
def test_what_it_does_not_know_is_an_error(statement: Any) -> None:
    with pytest.raises(NotImplementedError):
        allowed(statement)


def allowed(statement: Any) -> bool:
    row = {"Sid": "One", "Effect": "Allow", "Action": VOLUME.action, "Resource": "*", **statement}
    return bool(allowing(read("policy", json.dumps({"Statement": [row]})), VOLUME))


TAGGED = "TagSpecification.1.ResourceType=volume&" + "&".join(
    f"TagSpecification.1.Tag.1.{name}={value}" for name, value in (("Key", "environment"), ("Value", "lab"))
)
REQUESTED, OWN = "aws:RequestTag/environment", "aws:ResourceTag/environment"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            Recorded(
                "ec2", "us-west-2", "RunInstances", "POST",
                f"/?\nImageId=ami-03cf127a&SubnetId=subnet-b4112be3&SecurityGroupId.1=sg-b4112be3&{TAGGED}",
                {"subnet-b4112be3": {"environment": "lab"}},
            ),
            {
                ("ec2:RunInstances", "instance/*"): {},
                ("ec2:RunInstances", "network-interface/*"): {},
                ("ec2:RunInstances", "volume/*"): {REQUESTED: "lab"},
                ("ec2:RunInstances", "image/ami-03cf127a"): {},
                ("ec2:RunInstances", "subnet/subnet-b4112be3"): {OWN: "lab"},
                ("ec2:RunInstances", "security-group/sg-b4112be3"): {},
                ("ec2:CreateTags", "volume/*"): {REQUESTED: "lab", "ec2:CreateAction": "RunInstances"},
            },
        ),
        (
            Recorded(
                "ec2", "us-west-2", "CreateVpcPeeringConnection", "POST",
                "/?\nVpcId=vpc-aaaaaaaa&PeerVpcId=vpc-bbbbbbbb&PeerRegion=eu-west-1",
            ),
            {
                ("ec2:CreateVpcPeeringConnection", "vpc-peering-connection/*"): {},
                ("ec2:CreateVpcPeeringConnection", "vpc/vpc-aaaaaaaa"): {},
            },
        ),
        (
            Recorded(
                "ec2", "us-west-2", "DeleteTags", "POST",
                "/?\nResourceId.1=vpc-aaaaaaaa&Tag.1.Key=environment&Tag.1.Value=lab",
                {"vpc-aaaaaaaa": {"environment": "other"}},
            ),
            {("ec2:DeleteTags", "vpc/vpc-aaaaaaaa"): {OWN: "other"}},
        ),
        (
            Recorded(
                "autoscaling", "us-west-2", "CreateAutoScalingGroup", "POST",
                "/?\nAutoScalingGroupName=lab-a&VPCZoneIdentifier=subnet-b4112be3",
                launches={
                    "ImageId": "ami-03cf127a",
                    "IamInstanceProfile": {"Name": "lab-node"},
                    "TagSpecifications": [
                        {"ResourceType": "volume", "Tags": [{"Key": "environment", "Value": "lab"}]}
                    ],
                },
            ),
            {
                ("autoscaling:CreateAutoScalingGroup", "autoScalingGroupName/lab-a"): {},
                ("ec2:RunInstances", "instance/*"): {},
                ("ec2:RunInstances", "network-interface/*"): {},
                ("ec2:RunInstances", "volume/*"): {REQUESTED: "lab"},
                ("ec2:RunInstances", "image/ami-03cf127a"): {},
                ("ec2:RunInstances", "subnet/subnet-b4112be3"): {},
                ("ec2:CreateTags", "volume/*"): {REQUESTED: "lab", "ec2:CreateAction": "RunInstances"},
                ("iam:PassRole", "role/lab-node"): {"iam:PassedToService": "ec2.amazonaws.com"},
                ("iam:CreateServiceLinkedRole", "role/aws-service-role/autoscaling.amazonaws.com/*"): {
                    "iam:AWSServiceName": "autoscaling.amazonaws.com"
                },
            },
        ),
    ],
    ids=["launch", "peering", "untagging", "group"],
)  # fmt: skip
def test_what_iam_is_asked_for_a_call(call: Recorded, expected: Any) -> None:
    """Each resource has tags of its own; of a peering, only the VPC on the caller's side is asked about; tags
    that are taken away are not those of the request; a group needs what its template needs."""
    asked = {(each.action, each.resource.rpartition(":")[2]): dict(each.context) for each in requests(call)}
    region = {"aws:RequestedRegion": "us-west-2"}
    assert asked == {what: {**region, **context} for what, context in expected.items()}
