"""What a person, and a program, reads of a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
    found: dict[str, Any] = json.loads((DATA / f"plan_{name}.json").read_text())
    return found


def plan(name: str) -> Plan:
    return parse(shown(name), SITES)


def money(document: dict[str, Any]) -> Cost:
    return cost.monthly(document, Prices(), sites=SITES, regions={})


def resources(*after: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A plan that makes these."""
    return {
        "resource_changes": [
            {
                "address": f"module.us_west_2.{kind}.x{number}",
                "module_address": "module.us_west_2",
                "mode": "managed",
                "type": kind,
                "name": f"x{number}",
                "change": {"actions": ["create"], "before": None, "after": values},
            }
            for number, (kind, values) in enumerate(after)
        ]
    }


@pytest.mark.parametrize(("multi_az", "zones"), [(False, 1), (True, 2)])
def test_a_database_costs_its_zones_and_a_disk_that_grows(multi_az: bool, zones: int) -> None:
    sizes = {"allocated_storage": 20, "max_allocated_storage": 100, "multi_az": multi_az}
    found = money(resources(("aws_db_instance", {"instance_class": "db.t4g.small", **sizes})))
    assert found.after.low == pytest.approx(zones * (0.03 * cost.HOURS + 2))
    assert found.after.high == pytest.approx(zones * (0.03 * cost.HOURS + 10))
    unknown = money(resources(("aws_db_instance", {"instance_class": "db.x9.large", **sizes})))
    assert unknown.unknown == ("db.x9.large in us-west-2",)


def test_summary_of_a_dangerous_plan() -> None:
    text = summary.text(plan("second"), environment="lab", cost=money(shown("second")))
    assert text + "\n" == (DATA / "summary_second.txt").read_text()


def test_what_is_lost_comes_first_and_names_are_marked() -> None:
    named = ["module.us_west_2"]
    lines = summary.text(plan("second"), environment="lab", named=named).splitlines()
    assert lines[2] == "Can't be had back:"
    (marked,) = (line for line in lines if "(named)" in line)
    assert "module.us_west_2.aws_efs_file_system.home" in marked


def test_a_large_plan_stays_readable() -> None:
    made = resources(
        *(("aws_subnet", {}) for _ in range(200)),
        *(("aws_nat_gateway", {}) for _ in range(40)),
        *((f"aws_thing_{number}", {}) for number in range(40)),
    )
    text = summary.text(parse(made, SITES), environment="lab")
    lines = text.splitlines()
    assert len(lines) < 25
    assert max(map(len, lines)) <= 120
    assert "aws_subnet (200)" in text
    (gateways,) = (line for line in lines if "aws_nat_gateway" in line)
    assert gateways.startswith("  + aws_nat_gateway (40): x200, x201, ")
    assert gateways.endswith(" more")


def test_one_edit_that_touches_many_says_what_it_edits() -> None:
    change = {"actions": ["update"], "before": {"image_id": "ami-1"}, "after": {"image_id": "ami-2"}}
    touched = [
        {
            "address": f'module.us_west_2.module.pool["p{number:02}"].aws_launch_template.this',
            "module_address": f'module.us_west_2.module.pool["p{number:02}"]',
            "mode": "managed",
            "type": "aws_launch_template",
            "name": "this",
            "change": change,
        }
        for number in range(50)
    ]
    text = summary.text(parse({"resource_changes": touched}, SITES), environment="lab")
    (line,) = (line for line in text.splitlines() if "aws_launch_template" in line)
    assert line.startswith('  ~ aws_launch_template (50): pool["p00"], pool["p01"], ')
    assert line.endswith(" more; image_id")


def test_notes_come_before_everything() -> None:
    text = summary.text(plan("first"), environment="lab", notes=["`sites.a.cidr` can't change."])
    assert text.splitlines()[:3] == ["lab: 21 added", "", "`sites.a.cidr` can't change."]


def test_a_plan_of_outputs_only() -> None:
    only = parse({"output_changes": {"x": {"actions": ["create"], "after_sensitive": True}}}, {})
    assert summary.text(only, environment="lab") == "lab: only outputs change\n\nOutputs that change: x"


def test_json_is_complete_and_keeps_secrets() -> None:
    told = json.dumps(summary.to_json(plan("second"), environment="lab", cost=money(shown("second"))))
    assert "secret of" not in told
    back = json.loads(told)
    assert back["counts"] == {"added": 4, "changed": 3, "replaced": 6, "destroyed": 2}
    assert back["sites"]["eu-west-1"]["replaced"] == 5
    assert len(back["protected"]) == 3
    assert back["cost"]["unknown"] == ["p9.huge in us-west-2"]
    assert back["cost"]["dated"] == "2026-10-01"


def test_cost_of_each_half_by_hand() -> None:
    found = money(shown("second"))
    before, after = found.sites["us-west-2"]
    fixed = (0.05 + 0.005) * 730
    cpu, gpu, disk = 0.2 * 730, 3.0 / 2 * 730, 100 * 0.08
    assert before.low == pytest.approx(fixed + 1 * (cpu + disk))
    assert before.high == pytest.approx(fixed + 4 * (cpu + disk) + 10 * (gpu + disk))
    master = 0.1 * 730 + 50 * 0.08
    assert after.low == pytest.approx(fixed + master + 2 * (cpu + disk))
    # The type that has no price is named; its disks are counted.
    assert after.high == pytest.approx(fixed + master + 8 * (cpu + disk) + 10 * disk)
    assert found.unknown == ("p9.huge in us-west-2",)


def test_group_takes_its_type_from_a_template_that_does_not_exist_yet() -> None:
    found = money(shown("first"))
    _, after = found.sites["us-west-2"]
    assert after.high > 10 * 3.0 / 2 * 730
    assert found.unknown == ()


def test_group_with_weights_and_a_base_on_demand() -> None:
    policy = {
        "instances_distribution": [
            {"on_demand_base_capacity": 4, "on_demand_percentage_above_base_capacity": 25}
        ],
        "launch_template": [{"override": [{"instance_type": "m6i.xlarge", "weighted_capacity": "4"}]}],
    }
    group = {"min_size": 0, "max_size": 20, "mixed_instances_policy": [policy]}
    found = money(resources(("aws_autoscaling_group", group)))
    # 20 units: 4 + 25 % of 16 on demand, 12 spot; an instance is 4 units.
    assert found.after.low == 0
    assert found.after.high == pytest.approx((8 / 4 * 0.2 + 12 / 4 * 0.1) * 730)


def test_group_with_a_launch_configuration_that_bids() -> None:
    configuration = {
        "name": "lc",
        "instance_type": "m6i.xlarge",
        "spot_price": "0.1",
        "root_block_device": [{"volume_size": 100, "volume_type": "gp3"}],
    }
    group = {"min_size": 1, "max_size": 1, "launch_configuration": "lc"}
    found = money(resources(("aws_launch_configuration", configuration), ("aws_autoscaling_group", group)))
    assert found.after.low == pytest.approx(0.1 * 730 + 8)


def test_group_whose_type_nobody_can_tell_is_named() -> None:
    found = money(resources(("aws_autoscaling_group", {"min_size": 1, "max_size": 1})))
    assert found.unknown == ("the instance type of module.us_west_2.aws_autoscaling_group.x0",)


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
    found = money(
        resources(
            ("aws_vpn_connection", {}),
            ("aws_lb", {"load_balancer_type": "network"}),
            ("aws_vpc_endpoint", {"vpc_endpoint_type": "Gateway"}),
            ("aws_ebs_volume", {"size": 10, "type": "io2"}),
            ("aws_iam_role", {}),
        )
    )
    assert found.after.low == found.after.high == pytest.approx(0.05 * 730)
    assert found.unknown == ("io2 gb in us-west-2", "nlb in us-west-2")


def test_interface_endpoints_cost_in_every_zone_also_before_their_subnets_exist() -> None:
    subnets = [("aws_subnet", {"tags": {"tier": tier}}) for tier in ("public", "private", "private")]
    endpoint = ("aws_vpc_endpoint", {"vpc_endpoint_type": "Interface"})
    known = ("aws_vpc_endpoint", {"vpc_endpoint_type": "Interface", "subnet_ids": ["a", "b", "c"]})
    assert money(resources(*subnets, endpoint)).after.low == pytest.approx(2 * 0.01 * 730)
    assert money(resources(*subnets, known)).after.low == pytest.approx(3 * 0.01 * 730)


def test_unchanged_cost_is_said_so() -> None:
    same = Cost(Range(10, 20), Range(10, 20), {}, (), "2026-10-01")
    assert "Monthly cost: $10 at min, $20 at max, unchanged" in summary.text(
        plan("first"), environment="lab", cost=same
    )


def test_drift_in_words() -> None:
    drifted = parse(
        {
            "resource_drift": [
                {
                    "address": "aws_vpc.x",
                    "mode": "managed",
                    "type": "aws_vpc",
                    "name": "x",
                    "change": {"actions": ["update"], "before": {"a": 1}, "after": {"a": 2}},
                },
                {
                    "address": "aws_eip.y",
                    "mode": "managed",
                    "type": "aws_eip",
                    "name": "y",
                    "change": {"actions": ["delete"], "before": {}, "after": None},
                },
            ]
        },
        {},
    ).drift
    assert summary.drift_text(drifted, environment="lab", options="--env lab").splitlines()[:4] == [
        "lab: 2 resources changed outside of Terraform",
        "  - aws_eip.y is gone",
        "  ~ aws_vpc.x",
        "      a: 1 → 2",
    ]
    assert summary.drift_text((), environment="lab", options="") == "No drift: lab is as it was last left."


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


def test_rules_of_a_buckets_life_cycle_are_told_in_words() -> None:
    old = rule("old-versions", noncurrent_version_expiration=[{"noncurrent_days": 30}])
    leftovers = rule(
        "left",
        abort_incomplete_multipart_upload=[{"days_after_initiation": 7}],
        expiration=[{"days": 0, "expired_object_delete_marker": True, "date": None}],
    )
    runs = rule("expire", filter=[{"prefix": "runs/"}], expiration=[{"days": 90}])
    archive = rule("archive", transition=[{"days": 1, "storage_class": "GLACIER"}])
    change = {
        "address": "aws_s3_bucket_lifecycle_configuration.x",
        "mode": "managed",
        "type": "aws_s3_bucket_lifecycle_configuration",
        "name": "x",
        "change": {
            "actions": ["update"],
            "before": {"rule": [old, leftovers, runs]},
            "after": {
                "rule": [
                    {**runs, "expiration": [{"days": 30}]},
                    {**old, "status": "Disabled"},
                    archive,
                ]
            },
        },
    }
    drifted = parse({"resource_drift": [change]}, {}).drift
    lines = summary.drift_text(drifted, environment="lab", options="--env lab").splitlines()[2:-1]
    assert sorted(line.strip() for line in lines) == [
        "rule[archive]: none → moves objects to GLACIER after 1 day",
        "rule[expire]: deletes objects under runs/ after 90 days → deletes objects under runs/ after 30 days",
        "rule[left]: ends unfinished uploads after 7 days, removes delete markers that stand alone → none",
        "rule[old-versions]: deletes old versions after 30 days → deletes old versions after 30 days (off)",
    ]
    planned = summary.text(parse({"resource_changes": [change]}, {}), environment="lab")
    assert "rule[archive]: none → moves objects to GLACIER after 1 day" in planned


def test_drift_that_an_apply_leaves_is_in_the_plan_with_what_to_do() -> None:
    was = {
        "terraform_version": "1.11.0",
        "resource_drift": [
            {
                "address": "module.us_west_2.aws_vpc.this",
                "module_address": "module.us_west_2",
                "mode": "managed",
                "type": "aws_vpc",
                "name": "this",
                "change": {
                    "actions": ["update"],
                    "before": {"dhcp_options_id": "dopt-1"},
                    "after": {"dhcp_options_id": "dopt-2"},
                },
            }
        ],
    }
    lasting = parse(was, SITES).drift
    empty = parse({"terraform_version": "1.11.0"}, SITES)
    text = summary.text(empty, environment="lab", lasting=lasting)
    assert "module.us_west_2.aws_vpc.this" in text
    assert 'dhcp_options_id: "dopt-1" → "dopt-2"' in text
    assert text != summary.text(empty, environment="lab")
    told = summary.to_json(empty, environment="lab", lasting=lasting)["lasting"]
    assert [(one["address"], one["attributes"][0]["path"]) for one in told] == [
        ("module.us_west_2.aws_vpc.this", "dhcp_options_id")
    ]
