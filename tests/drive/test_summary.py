"""What a person, and a program, reads of a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drive.conftest import Messages
from drive.test_structure import policy

from infra.drive import cost, summary
from infra.drive.cost import Cost, Range
from infra.drive.plan import Plan, parse

DATA = Path(__file__).parent / "data"
SITES = {"us_west_2": "us-west-2", "eu_west_1": "eu-west-1"}


class Prices:
    """Round figures."""

    DATED = "2026-10-01"

    def on_demand(self, instance_type: str, region: str) -> float | None:
        return {"m6i.large": 0.1, "m6i.xlarge": 0.2, "p3.2xlarge": 3.0}.get(instance_type)

    def spot(self, instance_type: str, region: str) -> float | None:
        full = self.on_demand(instance_type, region)
        return None if full is None else full / 2

    def database(self, instance_class: str, region: str) -> float | None:
        return {"db.t4g.small": 0.03}.get(instance_class)

    def unit(self, name: str, region: str) -> float | None:
        hourly = {
            "nat_gateway_hour": 0.05,
            "interface_endpoint_hour": 0.01,
            "public_ipv4_hour": 0.005,
            "vpn_connection_hour": 0.05,
            "transit_gateway_attachment_hour": 0.06,
        }
        return {**hourly, "gp3_gb_month": 0.08, "rds_gp3_gb_month": 0.1, "hosted_zone_month": 0.5}.get(name)


def shown(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / f"plan_{name}.json").read_text())
    return document


def plan(name: str) -> Plan:
    return parse(shown(name), SITES)


def money(document: dict[str, Any]) -> Cost:
    return cost.monthly(document, Prices(), sites=SITES, regions={})


def row(kind: str, name: str, change: dict[str, Any], module: str = "module.us_west_2") -> dict[str, Any]:
    address = f"{module}.{kind}.{name}" if module else f"{kind}.{name}"
    return {
        "address": address,
        "module_address": module,
        "mode": "managed",
        "type": kind,
        "name": name,
        "change": change,
    }


def resources(*after: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A plan that makes these."""
    made = (
        row(kind, f"x{number}", {"actions": ["create"], "before": None, "after": values})
        for number, (kind, values) in enumerate(after)
    )
    return {"resource_changes": list(made)}


def update(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {"actions": ["update"], "before": before, "after": after}


def rule(name: str, **blocks: Any) -> dict[str, Any]:
    """A rule of a bucket's life cycle, as the provider shows it."""
    return {
        "id": name,
        "status": "Enabled",
        "prefix": "",
        "filter": [{"and": [], "object_size_greater_than": None, "prefix": "", "tag": []}],
        "expiration": [],
        "transition": [],
        "noncurrent_version_expiration": [],
        "noncurrent_version_transition": [],
        "abort_incomplete_multipart_upload": [],
        **blocks,
    }


def life_cycles() -> dict[str, Any]:
    """A rule that changes, one that is off, one that goes and one that comes."""
    old = rule("old-versions", noncurrent_version_expiration=[{"noncurrent_days": 30}])
    leftovers = rule(
        "left",
        abort_incomplete_multipart_upload=[{"days_after_initiation": 7}],
        expiration=[{"days": 0, "expired_object_delete_marker": True, "date": None}],
    )
    runs = rule("expire", filter=[{"prefix": "runs/"}], expiration=[{"days": 90}])
    archive = rule("archive", transition=[{"days": 1, "storage_class": "GLACIER"}])
    after = [{**runs, "expiration": [{"days": 30}]}, {**old, "status": "Disabled"}, archive]
    return update({"rule": [old, leftovers, runs]}, {"rule": after})


def policies(*names: str) -> list[dict[str, Any]]:
    change = update({"policy": policy("us-west-2")}, {"policy": policy("us-west-2", "eu-central-1")})
    return [row("aws_iam_role_policy", name, change, "module.identity") for name in names]


def test_what_a_person_reads(messages: Messages) -> None:
    """Summaries and drift as a whole: what is lost comes first, many are grouped, long lists are cut."""
    many = resources(
        *(("aws_subnet", {}) for _ in range(200)),
        *(("aws_nat_gateway", {}) for _ in range(40)),
        *((f"aws_thing_{number}", {}) for number in range(9)),
    )
    image = update({"image_id": "ami-1"}, {"image_id": "ami-2"})
    pools = [
        row("aws_launch_template", "this", image, f'module.us_west_2.module.pool["p{number:02}"]')
        for number in range(50)
    ]
    subnets = [f"subnet-{number}" for number in range(9)]
    replaced = update({"subnets": subnets}, {"subnets": [*subnets[:8], "subnet-a"]})
    buckets = row("aws_s3_bucket_lifecycle_configuration", "x", life_cycles())
    lasting = {
        "terraform_version": "1.11.0",
        "resource_drift": [
            row("aws_vpc", "this", update({"dhcp_options_id": "dopt-1"}, {"dhcp_options_id": "dopt-2"}))
        ],
    }
    gone = row("aws_eip", "y", {"actions": ["delete"], "before": {}, "after": None})
    drifted = parse({"resource_drift": [gone, buckets]}, SITES).drift
    unchanged = Cost(Range(10, 20), Range(10, 20), {}, (), "2026-10-01")
    outputs = {"output_changes": {"x": {"actions": ["create"], "after_sensitive": True}}}

    def said(shown: dict[str, Any], **more: Any) -> str:
        return summary.text(parse(shown, SITES), environment="lab", **more)

    texts = {
        "a dangerous plan": said(
            shown("second"), cost=money(shown("second")), named=["module.us_west_2"], notes=["A note."]
        ),
        "many": said(many, cost=unchanged),
        "one edit of many": said({"resource_changes": pools}),
        "structures": said({"resource_changes": [row("aws_lb", "x", replaced), buckets, *policies("a")]}),
        "policies alike": said({"resource_changes": policies("a", "b", "c")}),
        "outputs": said(outputs),
        "nothing": said({}),
        "drift that stays": said({"terraform_version": "1.11.0"}, lasting=parse(lasting, SITES).drift),
        "drift": summary.drift_text(drifted, environment="lab", options="--env lab"),
        "no drift": summary.drift_text((), environment="lab", options=""),
    }
    messages.compare("plan", "".join(f"== {name}\n{text}\n\n" for name, text in texts.items()))


@pytest.mark.parametrize(("multi_az", "zones"), [(False, 1), (True, 2)])
def test_a_database_costs_its_zones_and_a_disk_that_grows(multi_az: bool, zones: int) -> None:
    sizes = {"allocated_storage": 20, "max_allocated_storage": 100, "multi_az": multi_az}
    costs = money(resources(("aws_db_instance", {"instance_class": "db.t4g.small", **sizes})))
    assert costs.after.low == pytest.approx(zones * (0.03 * cost.HOURS + 2))
    assert costs.after.high == pytest.approx(zones * (0.03 * cost.HOURS + 10))
    unknown = money(resources(("aws_db_instance", {"instance_class": "db.x9.large", **sizes})))
    assert unknown.unknown == ("db.x9.large in us-west-2",)


def test_json_is_complete_and_keeps_secrets() -> None:
    text = json.dumps(summary.to_json(plan("second"), environment="lab", cost=money(shown("second"))))
    assert "secret of" in json.dumps(shown("second"))  # Terraform prints them
    assert "secret of" not in text + repr(plan("second"))
    summarised = json.loads(text)
    assert summarised["counts"] == {"added": 4, "changed": 3, "replaced": 6, "destroyed": 2}
    assert summarised["sites"]["eu-west-1"]["replaced"] == 5
    assert len(summarised["protected"]) == 3
    assert summarised["cost"]["unknown"] == ["p9.huge in us-west-2"]
    assert summarised["cost"]["dated"] == "2026-10-01"
    [change] = summary.to_json(parse({"resource_changes": policies("a")}, {}), environment="lab")["changes"]
    assert len(change["attributes"][0]["difference"]) == 2
    lasting = summary.to_json(plan("first"), environment="lab", lasting=plan("second").changes)["lasting"]
    assert [one["address"] for one in lasting] == [one["address"] for one in summarised["changes"]]


def test_cost_of_each_half_by_hand() -> None:
    costs = money(shown("second"))
    before, after = costs.sites["us-west-2"]
    fixed = (0.05 + 0.005) * 730
    cpu, gpu, disk = 0.2 * 730, 3.0 / 2 * 730, 100 * 0.08
    assert before.low == pytest.approx(fixed + 1 * (cpu + disk))
    assert before.high == pytest.approx(fixed + 4 * (cpu + disk) + 10 * (gpu + disk))
    master = 0.1 * 730 + 50 * 0.08
    assert after.low == pytest.approx(fixed + master + 2 * (cpu + disk))
    # The type that has no price is named; its disks are counted.
    assert after.high == pytest.approx(fixed + master + 8 * (cpu + disk) + 10 * disk)
    assert costs.unknown == ("p9.huge in us-west-2",)


def test_group_takes_its_type_from_a_template_that_does_not_exist_yet() -> None:
    costs = money(shown("first"))
    _, after = costs.sites["us-west-2"]
    assert after.high > 10 * 3.0 / 2 * 730
    assert costs.unknown == ()


def test_group_with_weights_and_a_base_on_demand() -> None:
    policy = {
        "instances_distribution": [
            {"on_demand_base_capacity": 4, "on_demand_percentage_above_base_capacity": 25}
        ],
        "launch_template": [{"override": [{"instance_type": "m6i.xlarge", "weighted_capacity": "4"}]}],
    }
    group = {"min_size": 0, "max_size": 20, "mixed_instances_policy": [policy]}
    costs = money(resources(("aws_autoscaling_group", group)))
    # 20 units: 4 + 25 % of 16 on demand, 12 spot; an instance is 4 units.
    assert costs.after.low == 0
    assert costs.after.high == pytest.approx((8 / 4 * 0.2 + 12 / 4 * 0.1) * 730)


def test_group_with_a_launch_configuration_that_bids() -> None:
    configuration = {
        "name": "lc",
        "instance_type": "m6i.xlarge",
        "spot_price": "0.1",
        "root_block_device": [{"volume_size": 100, "volume_type": "gp3"}],
    }
    group = {"min_size": 1, "max_size": 1, "launch_configuration": "lc"}
    costs = money(resources(("aws_launch_configuration", configuration), ("aws_autoscaling_group", group)))
    assert costs.after.low == pytest.approx(0.1 * 730 + 8)


def test_group_whose_type_nobody_can_tell_is_named() -> None:
    costs = money(resources(("aws_autoscaling_group", {"min_size": 1, "max_size": 1})))
    assert len(costs.unknown) == 1
    assert costs.unknown[0].endswith(" module.us_west_2.aws_autoscaling_group.x0")


def test_a_connection_to_a_transit_gateway_is_an_attachment_too() -> None:
    """Also before the gateway exists: what is not known yet is left out of a plan."""
    costs: list[tuple[float, dict[str, Any]]] = [
        (0.05, {"transit_gateway_id": None}),
        (0.05, {"transit_gateway_id": None, "vpn_gateway_id": "vgw-1"}),
        (0.11, {"vpn_gateway_id": None}),
        (0.11, {"vpn_gateway_id": "", "transit_gateway_id": "tgw-1"}),
    ]
    for hourly, values in costs:
        assert money(resources(("aws_vpn_connection", values))).after.low == pytest.approx(hourly * 730)


def test_what_has_no_price_is_named_and_gateway_endpoints_are_free() -> None:
    costs = money(
        resources(
            ("aws_vpn_connection", {}),
            ("aws_lb", {"load_balancer_type": "network"}),
            ("aws_vpc_endpoint", {"vpc_endpoint_type": "Gateway"}),
            ("aws_ebs_volume", {"size": 10, "type": "io2"}),
            ("aws_iam_role", {}),
        )
    )
    assert costs.after.low == costs.after.high == pytest.approx(0.05 * 730)
    assert costs.unknown == ("io2 gb in us-west-2", "nlb in us-west-2")


def test_interface_endpoints_cost_in_every_zone_also_before_their_subnets_exist() -> None:
    subnets = [("aws_subnet", {"tags": {"tier": tier}}) for tier in ("public", "private", "private")]
    endpoint = ("aws_vpc_endpoint", {"vpc_endpoint_type": "Interface"})
    known = ("aws_vpc_endpoint", {"vpc_endpoint_type": "Interface", "subnet_ids": ["a", "b", "c"]})
    assert money(resources(*subnets, endpoint)).after.low == pytest.approx(2 * 0.01 * 730)
    assert money(resources(*subnets, known)).after.low == pytest.approx(3 * 0.01 * 730)
