"""What an apply does to the state and no plan says."""

from __future__ import annotations

from typing import Any

from infra.drive.repair import State, repair, tainted, untaint


def state(*resources: State, serial: int = 4) -> State:
    return {"version": 4, "serial": serial, "lineage": "one", "resources": list(resources)}


def resource(
    kind: str, *instances: State, module: str = "", name: str = "this", mode: str = "managed"
) -> State:
    head = {"module": module} if module else {}
    return {**head, "mode": mode, "type": kind, "name": name, "instances": list(instances)}


def instance(identifier: str, key: Any = None, **more: Any) -> State:
    keyed = {} if key is None else {"index_key": key}
    return {**keyed, "attributes": {"id": identifier}, **more}


def test_what_was_dropped_is_put_back_with_its_neighbours() -> None:
    module = 'module.us_west_2.module.pool["a\\"b"]'
    subnets = resource("aws_subnet", instance("subnet-1", "a"), instance("subnet-2", 'b"c'), module=module)
    before = state(resource("aws_vpc", instance("vpc-1")), subnets)
    after = state(resource("aws_subnet", instance("subnet-1", "a"), module=module), serial=6)
    repaired = repair(before, after, ())
    assert repaired.restored == ("aws_vpc.this", f'{module}.aws_subnet.this["b\\"c"]')
    assert repaired.state["serial"] == 7
    assert repaired.state["resources"] == [subnets, before["resources"][0]]
    assert after["serial"] == 6  # what was given stays as it is


def test_what_a_plan_takes_away_stays_away() -> None:
    before = state(resource("aws_vpc", instance("vpc-1")), resource("aws_eip", instance("eip-1", 0)))
    assert not repair(before, state(), ["aws_vpc.this", "aws_eip.this[0]"])


def test_what_was_moved_or_made_again_is_not_lost() -> None:
    before = state(resource("aws_vpc", instance("vpc-1"), name="old"), resource("aws_eip", instance("eip-1")))
    after = state(resource("aws_vpc", instance("vpc-1"), name="new"), resource("aws_eip", instance("eip-2")))
    assert not repair(before, after, ())


def test_data_and_deposed_objects_are_left_to_terraform() -> None:
    before = state(
        resource("aws_region", instance("us-west-2"), mode="data"),
        resource("aws_vpc", instance("vpc-0", deposed="12345678")),
    )
    assert not repair(before, state(), ())


def test_a_stateful_thing_that_was_half_made_is_kept() -> None:
    after = state(
        resource("aws_vpc", instance("vpc-1", status="tainted")),
        resource("aws_subnet", instance("subnet-1", status="tainted")),
        resource("aws_efs_file_system", {"attributes": {"id": None}, "status": "tainted"}),
    )
    repaired = repair(state(), after, ())
    assert repaired.untainted == ("aws_vpc.this",)
    assert "status" not in repaired.state["resources"][0]["instances"][0]
    assert repaired.state["resources"][1:] == after["resources"][1:]


def test_what_a_person_marked_stays_marked() -> None:
    before = state(resource("aws_vpc", instance("vpc-1", status="tainted")))
    assert not repair(before, before, ())
    assert untaint(before, ["aws_vpc.this"]).untainted == ("aws_vpc.this",)
    assert not untaint(before, ["aws_vpc.other"])


def test_a_customer_gateway_is_never_left_tainted() -> None:
    """It would be replaced by itself, and then be deleted: also where a person marked it."""
    gateway = state(resource("aws_customer_gateway", instance("cgw-1", status="tainted")))
    assert repair(state(), gateway, ()).untainted == ("aws_customer_gateway.this",)
    assert repair(gateway, gateway, ()).untainted == ("aws_customer_gateway.this",)
    assert tainted(gateway) == ("aws_customer_gateway.this",)
    assert tainted(state(resource("aws_subnet", instance("subnet-1", status="tainted")))) == ()


def test_what_is_created_before_it_is_destroyed_is_completed() -> None:
    """Of a name that is taken AWS makes no second one: to replace it fails at each apply."""
    first = {"create_before_destroy": True, "status": "tainted"}
    role = {"attributes": {"id": "lab", "name": "lab"}, **first}
    prefixed = {"attributes": {"id": "lab1", "name": "lab1", "name_prefix": "lab"}, **first}
    after = state(
        resource("aws_iam_role", role),
        resource("aws_security_group", prefixed),
        resource("aws_nat_gateway", instance("nat-1", **first)),
        resource("aws_lb_target_group", {"attributes": {"id": "a", "name": "a"}, "status": "tainted"}),
    )
    assert repair(state(), after, ()).untainted == (
        "aws_iam_role.this",
        "aws_nat_gateway.this",
        "aws_security_group.this",
    )
    # What a person marked is replaced where it can be.
    assert not repair(after, after, ())
    assert tainted(after) == ("aws_iam_role.this",)
