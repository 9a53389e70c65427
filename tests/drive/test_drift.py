"""What a plan's JSON says of changes behind Terraform's back.

``tests/test_one_environment.py`` makes such changes, and has real Terraform plan them.
"""

from __future__ import annotations

from typing import Any

from infra.drive import drift

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


def found(**shown: list[dict[str, Any]]) -> list[tuple[str, str, list[tuple[str, Any, Any]]]]:
    changes = drift.changes({"terraform_version": "1.11.0", **shown}, SITES)
    return [
        (one.action, one.address, [(each.path, each.before, each.after) for each in one.attributes])
        for one in changes
    ]


def test_an_echo_of_another_resource_is_no_drift() -> None:
    table = row("aws_route_table", ["update"], {"route": []}, {"route": [{"gateway_id": "igw-1"}]})
    assert drift.changes({"terraform_version": "1.11.0", "resource_drift": [table]}, SITES) == ()


def test_what_differs_from_what_was_applied_is_drift_too() -> None:
    """An apply that ran meanwhile has read it into the state: there is no drift between the state and AWS."""
    gone = row("aws_sqs_queue", ["delete"], {"name": "work"}, None)
    planned = row("aws_sns_topic", ["update"], {**TOPIC, "display_name": "by hand"}, TOPIC)
    assert sorted(found(resource_drift=[gone], resource_changes=[planned])) == [
        ("delete", "module.us_west_2.aws_sqs_queue.this", []),
        ("update", "module.us_west_2.aws_sns_topic.this", [("display_name", "as we said", "by hand")]),
    ]


def world(**values: Any) -> dict[str, Any]:
    """A plan's JSON with one topic, as it is in AWS now."""
    one = {
        "address": "module.us_west_2.aws_sns_topic.this",
        "mode": "managed",
        "type": "aws_sns_topic",
        "name": "this",
        "provider_name": "registry.terraform.io/hashicorp/aws",
        "values": {"id": "t-1", **values},
    }
    modules = [{"address": "module.us_west_2", "resources": [one]}]
    return {
        "terraform_version": "1.11.0",
        "prior_state": {"values": {"root_module": {"child_modules": modules}}},
    }


def drifted(before: dict[str, Any], after: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The same with what the refresh found."""
    changed = row("aws_sns_topic", ["update"], {"id": "t-1", **before}, {"id": "t-1", **after})
    changed["change"] |= more
    return {**world(**after), "resource_drift": [changed]}


ROW = {"type": "aws_sns_topic", "id": "t-1", "attribute": "display_name", "was": "ours"}


def test_what_an_apply_leaves_as_it_found_it_is_noted_and_named_until_it_is_gone() -> None:
    shown = drifted({"display_name": "ours"}, {"display_name": "by hand"})
    assert drift.lasting(shown, ()) == (ROW,)
    later = world(display_name="by hand")  # the apply has written it into the state
    assert drift.lasting(later, (ROW,)) == (ROW,)
    (told,) = drift.named(later, SITES, (ROW,))
    assert (told.address, told.site, told.action) == (
        "module.us_west_2.aws_sns_topic.this",
        "us-west-2",
        "update",
    )
    assert [(each.path, each.before, each.after) for each in told.attributes] == [
        ("display_name", "ours", "by hand")
    ]
    again = drifted({"display_name": "by hand"}, {"display_name": "once more"})
    assert drift.lasting(again, (ROW,)) == (ROW,)
    back = drifted({"display_name": "by hand"}, {"display_name": "ours"})
    assert drift.lasting(back, (ROW,)) == ()
    assert drift.named(back, SITES, (ROW,)) == ()
    anew = world(display_name="other")
    anew["prior_state"]["values"]["root_module"]["child_modules"][0]["resources"][0]["values"]["id"] = "t-2"
    assert drift.lasting(anew, (ROW,)) == ()


def test_what_an_apply_restores_is_not_noted() -> None:
    shown = drifted({"display_name": "ours"}, {"display_name": "by hand"})
    for actions, after in (
        (["update"], {"display_name": "ours"}),
        (["delete", "create"], {}),
        (["delete"], {}),
    ):
        planned = row("aws_sns_topic", actions, {"display_name": "by hand"}, after)
        assert drift.lasting({**shown, "resource_changes": [planned]}, ()) == ()
    other = row("aws_sns_topic", ["update"], {"name": "a"}, {"name": "b"})
    assert drift.lasting({**shown, "resource_changes": [other]}, ()) == (ROW,)


def test_what_could_not_be_read_is_no_drift_once_it_can() -> None:
    """AWS is eventually consistent: an id that each VPC has was empty in the state."""

    def vpc(before: str, after: str) -> dict[str, Any]:
        told = {"id": "vpc-1", "main_route_table_id": before}, {"id": "vpc-1", "main_route_table_id": after}
        return {"terraform_version": "1.11.0", "resource_drift": [row("aws_vpc", ["update"], *told)]}

    assert drift.changes(vpc("", "rtb-1"), SITES) == ()
    assert drift.lasting(vpc("", "rtb-1"), ()) == ()
    (one,) = drift.changes(vpc("rtb-1", "rtb-2"), SITES)
    assert [each.path for each in one.attributes] == ["main_route_table_id"]
    assert len(drift.lasting(vpc("rtb-1", "rtb-2"), ())) == 1


def test_no_secret_is_noted() -> None:
    shown = drifted({"policy": "a"}, {"policy": "b"}, after_sensitive={"policy": True})
    assert drift.lasting(shown, ()) == ()
    within = drifted(
        {"rule": [{"key": "a"}]}, {"rule": [{"key": "b"}]}, before_sensitive={"rule": [{"key": True}]}
    )
    assert drift.lasting(within, ()) == ()


def test_an_attribute_is_told_once() -> None:
    shown = drifted({"display_name": "by hand"}, {"display_name": "once more", "name": "n"})
    found = drift.together(drift.changes(shown, SITES), drift.named(shown, SITES, (ROW,)))
    assert [each.path for one in found for each in one.attributes] == ["display_name", "name"]


def test_what_is_set_back_is_no_drift_of_its_own() -> None:
    """The state has what was found by the apply, and AWS what was left before."""
    back = drifted({"display_name": "by hand", "name": "a"}, {"display_name": "ours", "name": "b"})
    (left,) = drift.without_undone(drift.changes(back, SITES), back, (ROW,))
    assert [each.path for each in left.attributes] == ["name"]
    alone = drifted({"display_name": "by hand"}, {"display_name": "ours"})
    assert drift.without_undone(drift.changes(alone, SITES), alone, (ROW,)) == ()


def test_an_address_that_we_have_associated_is_no_drift_of_the_instance() -> None:
    """An apply that failed later left the instance in the state as it was before the association."""

    def associated(address: str) -> dict[str, Any]:
        before = {"id": "i-1", "public_ip": "", "public_dns": ""}
        after = {"id": "i-1", "public_ip": address, "public_dns": f"ec2-{address}.example"}
        held = (
            ("aws_instance", after),
            ("aws_eip", {"id": "eipalloc-1", "public_ip": "203.0.113.1"}),
            ("aws_eip_association", {"id": "e-1", "instance_id": "i-1", "allocation_id": "eipalloc-1"}),
        )
        resources = [{**row(kind, [], None, None), "values": values} for kind, values in held]
        return {
            "terraform_version": "1.11.0",
            "resource_drift": [row("aws_instance", ["update"], before, after)],
            "prior_state": {"values": {"root_module": {"resources": resources}}},
        }

    assert drift.changes(associated("203.0.113.1"), SITES) == ()
    assert drift.lasting(associated("203.0.113.1"), ()) == ()
    (other,) = drift.changes(associated("203.0.113.9"), SITES)
    assert {each.path for each in other.attributes} == {"public_dns", "public_ip"}
    assert len(drift.lasting(associated("203.0.113.9"), ())) == 2


def test_what_was_read_half_while_it_was_made_is_no_drift() -> None:
    zone = row(
        "aws_route53_zone",
        ["update"],
        {"id": "Z1", "name_servers": None},
        {"id": "Z1", "name_servers": ["a"]},
    )
    shown = {"terraform_version": "1.11.0", "resource_drift": [zone]}
    assert len(drift.lasting(shown, ())) == 1
    assert drift.lasting(shown, (), made={zone["address"]}) == ()
