"""Plans as data: what Terraform printed, and what we make of it."""

from __future__ import annotations

from typing import Any

import pytest

from infra.drive import destruction
from infra.drive.plan import SENSITIVE, UNKNOWN, Plan, parse, site_of

SITES = {"us_west_2": "us-west-2", "eu_west_1": "eu-west-1"}


def one_change(change: dict[str, Any], **more: Any) -> Plan:
    resource = {"address": "aws_thing.x", "mode": "managed", "type": "aws_thing", "name": "x"}
    return parse({"resource_changes": [resource | {"change": change} | more]}, {})


def test_a_list_that_hides_a_secret_is_hidden_whole() -> None:
    plan = one_change(
        {
            "actions": ["update"],
            "before": {"pairs": [{"key": "hush"}]},
            "after": {"pairs": [{"key": "hush"}, {"key": "more"}]},
            "before_sensitive": {"pairs": [{"key": True}]},
            "after_sensitive": {"pairs": [{"key": True}, {}]},
        }
    )
    (attribute,) = plan.changes[0].attributes
    assert (attribute.path, attribute.before, attribute.after) == ("pairs", SENSITIVE, SENSITIVE)


def test_nested_values_are_named_by_path() -> None:
    plan = one_change(
        {
            "actions": ["delete", "create"],
            "before": {
                "tags": {"a": "1", "b": "2"},
                "rule": [{"port": 1}, {"port": 2}],
                "ids": ["x"],
                "id": "i",
            },
            "after": {"tags": {"a": "1", "c": "3"}, "rule": [{"port": 1}, {"port": 9}], "ids": ["x", "y"]},
            "after_unknown": {"id": True, "rule": [{}, {}]},
            "replace_paths": [["rule", 1, "port"]],
        }
    )
    attributes = [(one.path, one.before, one.after, one.replaces) for one in plan.changes[0].attributes]
    assert attributes == [
        ("id", "i", UNKNOWN, False),
        ("ids", ["x"], ["x", "y"], False),
        ("rule[1].port", 2, 9, True),
        ("tags.b", "2", None, False),
        ("tags.c", None, "3", False),
    ]


def test_a_tag_of_a_group_is_named_by_its_key_wherever_it_stands() -> None:
    def tag(key: str, value: str) -> dict[str, Any]:
        return {"key": key, "value": value, "propagate_at_launch": True}

    plan = one_change(
        {
            "actions": ["update"],
            "before": {
                "tag": [tag("Name", "cpu"), tag("team", "vision"), tag("old", "x"), tag("secret", "a")]
            },
            "after": {
                "tag": [tag("team", "speech"), tag("secret", "b"), tag("Name", "cpu"), tag("k8s.io/new", "y")]
            },
            "before_sensitive": {"tag": [{}, {}, {}, {"value": True}]},
            "after_sensitive": {"tag": [{}, {"value": True}, {}, {}]},
            "after_unknown": {"tag": [{}, {}, {}, {}]},
            "replace_paths": [["tag", 0, "value"]],
        }
    )
    attributes = [(one.path, one.before, one.after, one.replaces) for one in plan.changes[0].attributes]
    assert attributes == [
        ("tag[team].value", "vision", "speech", True),
        ("tag[old]", tag("old", "x"), None, False),
        ("tag[secret].value", SENSITIVE, SENSITIVE, False),
        ("tag[k8s.io/new]", None, tag("k8s.io/new", "y"), False),
    ]


def test_blocks_that_only_change_places_are_a_change_too() -> None:
    rules = [{"id": "a", "status": "Enabled"}, {"id": "b", "status": "Enabled"}]
    plan = one_change({"actions": ["update"], "before": {"rule": rules}, "after": {"rule": rules[::-1]}})
    assert plan.changes[0].attributes


@pytest.mark.parametrize(
    ("actions", "action"),
    [
        (["create"], "create"),
        (["delete", "create"], "replace"),
        (["create", "delete"], "replace"),
        (["forget"], "forget"),
        (["create", "forget"], "create"),
        (["read"], "read"),
    ],
)
def test_actions(actions: list[str], action: str) -> None:
    assert one_change({"actions": actions, "before": None, "after": {}}).changes[0].action == action


def test_moves_imports_and_what_was_left_behind_count_and_reads_do_not() -> None:
    still = {"actions": ["no-op"], "before": {}, "after": {}}
    assert not one_change(still).has_changes
    assert one_change(still, previous_address="aws_thing.y").has_changes
    assert one_change(still | {"importing": {"id": "i-1"}}).has_changes
    assert not one_change({"actions": ["read"], "before": None, "after": {}}, mode="data").has_changes
    assert one_change({"actions": ["delete"], "before": {}, "after": None}, deposed="0a1b").changes[0].reason


def test_names_keep_their_keys() -> None:
    plan = parse(
        {
            "resource_changes": [
                {
                    "address": 'module.a["x.y"].aws_route53_record.r["aws_route53_record.z"]',
                    "module_address": 'module.a["x.y"]',
                    "mode": "managed",
                    "type": "aws_route53_record",
                    "name": "r",
                    "change": {"actions": ["create"], "before": None, "after": {}},
                }
            ]
        },
        {"a": "site-a"},
    )
    assert (plan.changes[0].name, plan.changes[0].site) == ('r["aws_route53_record.z"]', "site-a")


def test_sites_of_modules() -> None:
    assert site_of("module.us_west_2.module.network", SITES) == "us-west-2"
    assert site_of("module.dns", SITES) == "dns"
    assert site_of("", SITES) == ""


def test_control_plane_is_stateful_and_other_instances_are_not() -> None:
    assert destruction.loss("aws_instance", {"tags": {"role": "control-plane"}})
    assert not destruction.loss("aws_instance", {"tags": {"role": "ssh-node"}})
    assert not destruction.loss("aws_instance", {"tags": None})
    assert not destruction.loss("aws_subnet", {})


@pytest.mark.parametrize(
    ("named", "covered"),
    [
        ("module.a.aws_eip.nat", True),
        ("module.a", True),
        ("module.a.aws_eip", False),
        ('module.a.aws_eip.nat["x"]', True),
        ("module.ab", False),
        ("module.a.aws_eip.na", False),
    ],
)
def test_naming_a_thing_or_what_holds_it(named: str, covered: bool) -> None:
    address = 'module.a.aws_eip.nat["x"]'
    assert destruction.covers([named], address) is covered


def test_no_engine_says_more_actions_than_we_know() -> None:
    with pytest.raises(AssertionError, match="teleport"):
        one_change({"actions": ["teleport"], "before": {}, "after": {}})
