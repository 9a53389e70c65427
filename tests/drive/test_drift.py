"""What a plan's JSON says of changes behind Terraform's back.

``tests/test_behind_terraforms_back.py`` makes such changes, and has real Terraform plan them.
"""

from __future__ import annotations

from typing import Any

from infra.drive import drift, summary

SITES = {"us_west_2": "us-west-2"}
TOPIC = {"name": "alerts", "display_name": "as we said"}


def row(kind: str, actions: list[str], before: Any, after: Any) -> dict[str, Any]:
    return {
        "address": f"module.us_west_2.{kind}.this",
        "module_address": "module.us_west_2",
        "mode": "managed",
        "type": kind,
        "name": "this",
        "provider_name": "registry.terraform.io/hashicorp/aws",
        "change": {"actions": actions, "before": before, "after": after},
    }


def text(**shown: list[dict[str, Any]]) -> list[str]:
    found = drift.changes({"terraform_version": "1.11.0", **shown}, SITES)
    return summary.drift_text(found, environment="lab", options="--env lab").splitlines()


def test_what_has_changed_and_what_is_gone() -> None:
    changed = row("aws_sns_topic", ["update"], TOPIC, {**TOPIC, "display_name": "by hand"})
    gone = row("aws_sqs_queue", ["delete"], {"name": "work"}, None)
    assert text(resource_drift=[changed, gone])[:4] == [
        "lab: 2 resources changed outside of Terraform",
        "  ~ module.us_west_2.aws_sns_topic.this",
        '      display_name: "as we said" → "by hand"',
        "  - module.us_west_2.aws_sqs_queue.this is gone",
    ]


def test_an_echo_of_another_resource_is_no_drift() -> None:
    table = row("aws_route_table", ["update"], {"route": []}, {"route": [{"gateway_id": "igw-1"}]})
    assert drift.changes({"terraform_version": "1.11.0", "resource_drift": [table]}, SITES) == ()


def test_what_differs_from_what_was_applied_is_drift_too() -> None:
    """An apply that ran meanwhile has read it into the state: there is no drift between the state and AWS."""
    planned = row("aws_sns_topic", ["update"], {**TOPIC, "display_name": "by hand"}, TOPIC)
    said = text(resource_changes=[planned])
    assert said[1] == "  ~ module.us_west_2.aws_sns_topic.this"
    assert said[2] == '      display_name: "as we said" → "by hand"'
