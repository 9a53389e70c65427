"""Policies and user data, compared value by value."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from infra.drive import summary
from infra.drive.plan import parse
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
    found = difference(policy("us-west-2"), policy("us-west-2", "eu-central-1"))
    assert found is not None
    assert (found.added, found.removed) == (("eu-central-1",), ())
    assert found.names == "also names eu-central-1"
    assert found.lines == (
        'Statement[LookUp].Condition.StringEquals.aws:RequestedRegion: + "eu-central-1"',
        'Statement[ReadOwnSecrets].Resource: + "arn:aws:ssm:eu-central-1:123456789012:parameter/a/*"',
    )


def test_user_data_is_read_through_base64_yaml_and_json() -> None:
    found = difference(
        user_data(pool="gpu", labels={"a": 1, "b": [1]}), user_data(pool="gpu", labels={"a": 2, "b": [1]})
    )
    assert found is not None
    assert found.lines == ("write_files[/etc/causeway/node.json].content.labels.a: 1 → 2",)


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
    found = difference(policy("us-west-2"), policy("us-west-2", sid="See"))
    assert found is not None
    assert [line.split(":")[0] + ":" + line.split(":")[1][:2] for line in found.lines] == [
        "Statement[LookUp]: -",
        "Statement[See]: +",
    ]


def changed(*names: str, before: str, after: str) -> dict[str, Any]:
    return {
        "resource_changes": [
            {
                "address": f"module.identity.aws_iam_role_policy.{name}",
                "module_address": "module.identity",
                "mode": "managed",
                "type": "aws_iam_role_policy",
                "name": name,
                "change": {"actions": ["update"], "before": {"policy": before}, "after": {"policy": after}},
            }
            for name in names
        ]
    }


def test_policies_that_change_alike_are_told_once() -> None:
    shown = changed("a", "b", "c", before=policy("us-west-2"), after=policy("us-west-2", "eu-central-1"))
    lines = summary.text(parse(shown, {}), environment="lab").splitlines()
    (at,) = (place for place, line in enumerate(lines) if "aws_iam_role_policy" in line)
    assert lines[at] == "  ~ aws_iam_role_policy (3): a, b, c"
    assert lines[at + 1] == "      policy also names eu-central-1"


def test_one_policy_is_told_in_full() -> None:
    shown = changed("a", before=policy("us-west-2"), after=policy("us-west-2", "eu-central-1"))
    lines = summary.text(parse(shown, {}), environment="lab").splitlines()
    (at,) = (place for place, line in enumerate(lines) if "aws_iam_role_policy" in line)
    assert lines[at + 1] == "      policy: also names eu-central-1"
    assert lines[at + 2].startswith("        Statement[LookUp].Condition")
    [change] = summary.to_json(parse(shown, {}), environment="lab")["changes"]
    assert len(change["attributes"][0]["difference"]) == 2


def test_of_a_long_list_only_what_differs_is_told() -> None:
    names = [f"subnet-{number:017}" for number in range(9)]
    change = {
        "actions": ["update"],
        "before": {"subnets": names},
        "after": {"subnets": [*names[:8], "subnet-a"]},
    }
    resource = {"address": "aws_lb.x", "mode": "managed", "type": "aws_lb", "name": "x", "change": change}
    text = summary.text(parse({"resource_changes": [resource]}, {}), environment="lab")
    assert f'      subnets: "{names[8]}" → "subnet-a"' in text.splitlines()
