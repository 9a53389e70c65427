"""Policies and user data, compared value by value."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from infra.drive.structure import difference


def policy(*regions: str, sid: str = "LookUp") -> str:
    condition = {"StringEquals": {"aws:RequestedRegion": list(regions) if len(regions) > 1 else regions[0]}}
    resources = [f"arn:aws:ssm:{region}:123456789012:parameter/a/*" for region in regions]
    statements = [
        {"Sid": sid, "Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*", "Condition": condition},
        {"Sid": "ReadOwnSecrets", "Effect": "Allow", "Action": "ssm:GetParameter", "Resource": resources},
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def user_data(**facts: Any) -> str:
    file = {"path": "/etc/causeway/node.json", "content": json.dumps(facts)}
    return base64.b64encode(b"#cloud-config\n" + json.dumps({"write_files": [file]}).encode()).decode()


def test_a_region_more_in_a_policy() -> None:
    changes = difference(policy("us-west-2"), policy("us-west-2", "eu-central-1"))
    assert changes is not None
    assert (changes.added, changes.removed) == (("eu-central-1",), ())
    assert changes.names.endswith(" eu-central-1")
    assert changes.lines == (
        'Statement[LookUp].Condition.StringEquals.aws:RequestedRegion: + "eu-central-1"',
        'Statement[ReadOwnSecrets].Resource: + "arn:aws:ssm:eu-central-1:123456789012:parameter/a/*"',
    )


def test_user_data_is_read_through_base64_yaml_and_json() -> None:
    changes = difference(
        user_data(pool="gpu", labels={"a": 1, "b": [1]}), user_data(pool="gpu", labels={"a": 2, "b": [1]})
    )
    assert changes is not None
    assert changes.lines == ("write_files[/etc/causeway/node.json].content.labels.a: 1 → 2",)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ami-1", "ami-2"),
        (policy("us-west-2"), "not a policy"),
        (None, policy("us-west-2")),
        ("{", "}"),
        (1, 2),
    ],
)
def test_what_is_not_a_structure_is_not_taken_for_one(before: object, after: object) -> None:
    assert difference(before, after) is None


def test_a_statement_that_is_gone_and_one_that_is_new() -> None:
    changes = difference(policy("us-west-2"), policy("us-west-2", sid="See"))
    assert changes is not None
    assert [line.split(":")[0] + ":" + line.split(":")[1][:2] for line in changes.lines] == [
        "Statement[LookUp]: -",
        "Statement[See]: +",
    ]
