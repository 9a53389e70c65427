"""node_pool, control_plane and access, planned by real Terraform: what they make of what they are given.

Nothing here is read from AWS, so a plan needs neither an account nor an embedded one.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.drive.engine import Engine, find_engine
from infra.drive.terraform import SILENT

MODULES = Path(__file__).parents[2] / "templates" / "terraform" / "modules"
NAMES = ("node_pool", "control_plane", "access")


TAGS = {"cluster": "lab", "environment": "test", "site": "us-west-2"}
USER_DATA = '#cloud-config\nwrite_files: [{path: /etc/é, content: "$${HOME} %%{if}"}]\n'

PROVIDER = {
    "region": "us-west-2",
    "access_key": "none",
    "secret_key": "none",
    "skip_credentials_validation": True,
    "skip_metadata_api_check": True,
    "skip_requesting_account_id": True,
}

POOL: dict[str, Any] = {
    "source": "./modules/node_pool",
    "tags": TAGS,
    "subnet_ids": ["subnet-a", "subnet-b"],
    "security_group_ids": ["sg-node"],
    "instance_profile": "lab-node",
    "image_id": "ami-0123456789abcdef0",
    "instance_types": [{"name": "m6i.large"}],
    "max": 10,
    "root_disk": {"device": "/dev/sda1", "size_gib": 60, "type": "gp3", "iops": None, "throughput": None},
    "user_data": USER_DATA,
}

KEY = "arn:aws:kms:us-west-2:123456789012:key/mrk-0123456789abcdef0123456789abcdef"

POOLS: dict[str, dict[str, Any]] = {
    "plain": {
        "min": 2,
        "scratch_disks": [{"device": "/dev/sdf", "size_gib": 500, "iops": 6000, "throughput": 500}],
        "max_lifetime_seconds": 604800,
        "drain_timeout_seconds": 10,
        "autoscaler_tags": {"k8s.io/cluster-autoscaler/enabled": "true"},
    },
    "several": {
        "instance_types": [{"name": "m6i.large"}, {"name": "m5.large"}],
        "placement_group": "partition",
    },
    "keyed": {"kms_key": KEY, "scratch_disks": [{"device": "/dev/sdf", "size_gib": 500}]},
    "weighted": {"instance_types": [{"name": "m6i.xlarge", "weight": 4}]},
    "mixed": {
        "instance_types": [{"name": "g5.xlarge", "weight": 1}, {"name": "g5.2xlarge", "weight": 2}],
        "market": {
            "kind": "mixed",
            "on_demand_base": 1,
            "on_demand_percent": 25,
            "strategy": "capacity-optimized-prioritized",
        },
        "drain_timeout_seconds": 90000,
    },
    "spot": {
        "instance_types": [{"name": "p3.2xlarge"}],
        "capacity_rebalance": True,
        "market": {"kind": "spot", "max_price": "1.25"},
        "placement_group": "spread",
    },
    "p4d": {
        "subnet_ids": ["subnet-a"],
        "instance_types": [{"name": "p4d.24xlarge"}],
        "efa_interfaces": 4,
        "placement_group": "cluster",
        "capacity_reservation": {"preference": "none"},
    },
    "p5": {
        "instance_types": [{"name": "p5.48xlarge"}],
        "efa_interfaces": 32,
        "capacity_reservation": {"preference": "open", "id": "cr-0123456789abcdef0"},
    },
    "block": {
        "subnet_ids": ["subnet-a"],
        "instance_types": [{"name": "p5.48xlarge"}],
        "market": {"kind": "capacity-block"},
        "capacity_reservation": {"id": "cr-0123456789abcdef0"},
    },
    "reserved": {"capacity_reservation": {"preference": "capacity-reservations-only"}},
    "warm": {"warm_pool": {"state": "Hibernated", "min": 1, "max_prepared": 4, "reuse": False}},
    "old": {
        "launch": "configuration",
        "instance_types": [{"name": "p2.xlarge"}],
        "placement_group": "partition",
        "scratch_disks": [{"device": "/dev/sdf", "size_gib": 100}],
    },
    "old-spot": {
        "launch": "configuration",
        "market": {"kind": "spot", "max_price": "0.5"},
        "capacity_rebalance": True,
    },
}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too-few": ({"min": 11}, "The least capacity of wrong-too-few (11) is more than the most (10)."),
    "cluster": ({"placement_group": "cluster"}, "A cluster placement group is in one zone"),
    "reserved-spot": (
        {"capacity_reservation": {"id": "cr-0123456789abcdef0"}, "market": {"kind": "spot"}},
        "Spot machines never run in reserved capacity",
    ),
    "block-without": (
        {"market": {"kind": "capacity-block"}},
        "Machines of a Capacity Block need its id: wrong-block-without names no reservation.",
    ),
    "warm-spot": ({"warm_pool": {}, "market": {"kind": "spot"}}, "A warm pool is bought on demand"),
    "old-several": (
        {"launch": "configuration", "instance_types": [{"name": "m5.large"}, {"name": "m6i.large"}]},
        "A launch configuration has one instance type, of weight 1.",
    ),
    "old-mixed": (
        {"launch": "configuration", "market": {"kind": "mixed"}},
        "A launch configuration is either on demand or spot.",
    ),
    "old-spot": ({"launch": "configuration", "market": {"kind": "spot"}}, "need a max_price"),
    "old-efa": ({"launch": "configuration", "efa_interfaces": 1}, "need a launch template"),
}

MACHINE: dict[str, Any] = {
    "instance_type": "m6i.large",
    "image_id": "ami-0123456789abcdef0",
    "root_disk": {"size_gib": 100},
    "user_data": USER_DATA,
}

CONTROL_PLANE: dict[str, Any] = {
    "source": "./modules/control_plane",
    "name": "lab-us-west-2",
    "tags": TAGS,
    "vpc_id": "vpc-1",
    "load_balancer": "lab-us-west-2-api",
    "load_balancer_subnet_ids": {"us-west-2a": "subnet-a", "us-west-2b": "subnet-b"},
    "load_balancer_security_group_ids": ["sg-balancer"],
    "security_group_ids": ["sg-masters", "sg-ssh"],
    "instance_profile": "lab-control-plane",
    "masters": {
        f"master_{index}": {
            **MACHINE,
            "name": f"lab-us-west-2-master-{index}",
            "subnet_id": "subnet-a",
            "tags": {"role": "control-plane"},
        }
        for index in (1, 2, 3)
    },
}

ACCESS: dict[str, Any] = {
    "source": "./modules/access",
    "name": "lab-us-west-2",
    "tags": TAGS,
    "vpc_id": "vpc-1",
    "security_groups": {"ssh": "sg-ssh", "vpn": "sg-vpn"},
    "instance_profiles": {"ssh-node": "lab-ssh-node", "access-gateway": "lab-access-gateway"},
    "instances": {
        "open": {
            **MACHINE,
            "name": "lab-open",
            "role": "ssh-node",
            "subnet_id": "subnet-public",
            "public": True,
            "ssh_from": ["198.51.100.0/24", "203.0.113.7/32"],
        },
        "inner": {**MACHINE, "name": "lab-inner", "role": "ssh-node", "subnet_id": "subnet-a"},
        "gateway": {
            **MACHINE,
            "name": "lab-gateway",
            "role": "access-gateway",
            "subnet_id": "subnet-public",
            "public": True,
        },
    },
}


def root() -> dict[str, Any]:
    """A root module that calls everything; what is wrong is called only with ``-var wrong=true``."""
    wrong = '${var.wrong ? toset(["wrong"]) : toset([])}'
    return {
        "terraform": {"required_version": ">= 1.6"},
        "provider": {"aws": PROVIDER},
        "variable": {"wrong": {"type": "bool", "default": False}},
        "module": {
            **{name: POOL | {"name": f"lab-{name}"} | pool for name, pool in POOLS.items()},
            **{
                f"wrong-{name}": POOL | {"name": f"wrong-{name}", "for_each": wrong} | pool
                for name, (pool, _) in WRONG.items()
            },
            "control_plane": CONTROL_PLANE | {"kms_key": KEY},
            "access": ACCESS,
        },
        "output": {"old": {"value": "${module.old}"}},
    }


@dataclass(frozen=True)
class Root:
    folder: Path
    engine: Engine

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.engine.argv, *arguments],
            cwd=self.folder,
            env=os.environ | SILENT | {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


@dataclass(frozen=True)
class Planned:
    modules: dict[str, Any]
    outputs: dict[str, Any]

    def all(self, module: str, kind: str) -> dict[str, dict[str, Any]]:
        """Planned resources of a type: index (or name, without for_each) → values that are known."""
        return {
            str(one.get("index", one["name"])): one["values"]
            for one in self.modules[module]
            if one["type"] == kind
        }

    def one(self, module: str, kind: str) -> dict[str, Any]:
        (values,) = self.all(module, kind).values()
        return values

    def each(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Address and values of every resource."""
        for resources in self.modules.values():
            for one in resources:
                yield one["address"], one["values"]


@pytest.fixture(scope="module")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Root:
    folder = tmp_path_factory.mktemp("machines")
    (folder / "modules").symlink_to(MODULES)
    (folder / "main.tf.json").write_text(json.dumps(root()))
    made = Root(folder, find_engine())
    done = made("init", "-input=false", "-no-color")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def planned(terraform: Root) -> Planned:
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", "-out=plan")
    assert done.returncode == 0, done.stderr
    plan = json.loads(terraform("show", "-json", "plan").stdout)
    return Planned(
        {
            module["address"].removeprefix("module."): module["resources"]
            for module in plan["planned_values"]["root_module"]["child_modules"]
        },
        plan["output_changes"],
    )


def test_modules_are_valid_and_formatted(terraform: Root) -> None:
    done = terraform("validate", "-json")
    assert json.loads(done.stdout)["diagnostics"] == []
    for name in NAMES:
        assert terraform("fmt", "-check", "-diff", f"modules/{name}/").stdout == ""


def test_what_aws_would_refuse_half_way_is_refused_before(terraform: Root) -> None:
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", "-var=wrong=true")
    assert done.returncode == 1
    said = " ".join(done.stderr.replace("\u2502", "").split())
    for name, (_, message) in WRONG.items():
        assert message in said, name


def test_everything_is_tagged(planned: Planned) -> None:
    untaggable = {"lifecycle_hook", "launch_configuration", "attachment", "association", "autoscaling_group"}
    for address, values in planned.each():
        if not any(word in address for word in untaggable):
            assert values["tags"].items() >= {**TAGS, "Name": values["tags"]["Name"]}.items(), address


def test_metadata_needs_a_token_and_disks_are_encrypted_everywhere(planned: Planned) -> None:
    seen = 0
    for address, values in planned.each():
        for options in values.get("metadata_options") or []:
            assert (options["http_tokens"], options["http_put_response_hop_limit"]) == ("required", 1)
            seen += 1
        mappings = values.get("block_device_mappings") or []
        disks = [mapping["ebs"][0] for mapping in mappings]
        disks += (values.get("root_block_device") or []) + (values.get("ebs_block_device") or [])
        for disk in disks:
            # Launch templates keep their booleans as text.
            assert (str(disk["encrypted"]).lower(), str(disk["delete_on_termination"]).lower()) == (
                "true",
                "true",
            ), address
    assert seen == len(POOLS) + len(CONTROL_PLANE["masters"]) + len(ACCESS["instances"])


def test_one_type_on_demand_is_a_plain_template(planned: Planned) -> None:
    template, group = (
        planned.one("plain", "aws_launch_template"),
        planned.one("plain", "aws_autoscaling_group"),
    )
    assert "mixed_instances_policy" not in group
    assert len(group["launch_template"]) == 1
    assert base64.b64decode(template["user_data"]).decode() == USER_DATA.replace("$$", "$").replace("%%", "%")
    assert template["vpc_security_group_ids"] == ["sg-node"]
    assert {each["resource_type"] for each in template["tag_specifications"]} == {
        "instance",
        "network-interface",
        "volume",
    }
    root, scratch = (mapping["ebs"][0] for mapping in template["block_device_mappings"])
    assert (root["volume_size"], root["volume_type"]) == (60, "gp3")
    assert (scratch["volume_size"], scratch["iops"], scratch["throughput"]) == (500, 6000, 500)
    assert (group["min_size"], group["max_size"], group["max_instance_lifetime"]) == (2, 10, 604800)
    assert group["suspended_processes"] == ["AZRebalance"]
    assert group["wait_for_capacity_timeout"] == "0"
    assert group["capacity_rebalance"] is False


def test_a_key_encrypts_every_disk(planned: Planned) -> None:
    template = planned.one("keyed", "aws_launch_template")
    disks = [mapping["ebs"][0] for mapping in template["block_device_mappings"]]
    assert [disk["kms_key_id"] for disk in disks] == [KEY, KEY]
    masters = planned.all("control_plane", "aws_instance").values()
    assert {disk["kms_key_id"] for one in masters for disk in one["root_block_device"]} == {KEY}


def test_disks_of_single_machines_are_tagged_in_their_launch(planned: Planned) -> None:
    for module in ("control_plane", "access"):
        for machine in planned.all(module, "aws_instance").values():
            assert machine["volume_tags"] == machine["tags"] != {}


def test_autoscaler_tags_stay_on_the_group(planned: Planned) -> None:
    tags = planned.one("plain", "aws_autoscaling_group")["tag"]
    assert {tag["key"]: tag["propagate_at_launch"] for tag in tags} == {
        "k8s.io/cluster-autoscaler/enabled": False,
        **dict.fromkeys([*TAGS, "Name"], True),
    }


@pytest.mark.parametrize(("pool", "seconds"), [("plain", 30), ("spot", 900), ("mixed", 7200)])
def test_draining_waits_as_long_as_asked_within_what_aws_allows(
    planned: Planned, pool: str, seconds: int
) -> None:
    hook = planned.one(pool, "aws_autoscaling_lifecycle_hook")
    assert hook["heartbeat_timeout"] == seconds
    assert hook["lifecycle_transition"] == "autoscaling:EC2_INSTANCE_TERMINATING"


@pytest.mark.parametrize(
    ("pool", "distribution", "types", "rebalance"),
    [
        ("several", (0, 100, "price-capacity-optimized", ""), {"m6i.large": "", "m5.large": ""}, False),
        ("weighted", (0, 100, "price-capacity-optimized", ""), {"m6i.xlarge": "4"}, False),
        (
            "mixed",
            (1, 25, "capacity-optimized-prioritized", ""),
            {"g5.xlarge": "1", "g5.2xlarge": "2"},
            False,
        ),
        ("spot", (0, 0, "price-capacity-optimized", "1.25"), {"p3.2xlarge": ""}, True),
    ],
)
def test_markets_types_and_weights_are_a_policy(
    planned: Planned,
    pool: str,
    distribution: tuple[int, int, str, str],
    types: dict[str, str],
    rebalance: bool,
) -> None:
    group = planned.one(pool, "aws_autoscaling_group")
    assert "launch_template" not in group
    policy = group["mixed_instances_policy"][0]
    made = policy["instances_distribution"][0]
    assert (
        made["on_demand_base_capacity"],
        made["on_demand_percentage_above_base_capacity"],
        made["spot_allocation_strategy"],
        made["spot_max_price"] or "",
    ) == distribution
    overrides = policy["launch_template"][0]["override"]
    assert {each["instance_type"]: each["weighted_capacity"] or "" for each in overrides} == types
    assert group["capacity_rebalance"] is rebalance


@pytest.mark.parametrize(("pool", "adapters"), [("p4d", 4), ("p5", 32)])
def test_an_adapter_a_network_card(planned: Planned, pool: str, adapters: int) -> None:
    template = planned.one(pool, "aws_launch_template")
    cards = template["network_interfaces"]
    assert [(card["network_card_index"], card["device_index"], card["interface_type"]) for card in cards] == [
        (0, 0, "efa"),
        *((index, 1, "efa-only") for index in range(1, adapters)),
    ]
    assert all(card["security_groups"] == ["sg-node"] for card in cards)
    assert template["vpc_security_group_ids"] is None


def test_a_reservation_is_a_target_or_a_preference(planned: Planned) -> None:
    (aimed,) = planned.one("p5", "aws_launch_template")["capacity_reservation_specification"]
    assert aimed["capacity_reservation_preference"] is None
    assert aimed["capacity_reservation_target"][0]["capacity_reservation_id"] == "cr-0123456789abcdef0"
    (only,) = planned.one("reserved", "aws_launch_template")["capacity_reservation_specification"]
    assert only["capacity_reservation_preference"] == "capacity-reservations-only"
    assert only["capacity_reservation_target"] == []
    (none,) = planned.one("p4d", "aws_launch_template")["capacity_reservation_specification"]
    assert (none["capacity_reservation_preference"], none["capacity_reservation_target"]) == ("none", [])
    assert planned.one("plain", "aws_launch_template")["capacity_reservation_specification"] == []


def test_a_capacity_block_is_bought_by_its_template(planned: Planned) -> None:
    template = planned.one("block", "aws_launch_template")
    assert [one["market_type"] for one in template["instance_market_options"]] == ["capacity-block"]
    (aimed,) = template["capacity_reservation_specification"]
    assert aimed["capacity_reservation_target"][0]["capacity_reservation_id"] == "cr-0123456789abcdef0"
    assert "mixed_instances_policy" not in planned.one("block", "aws_autoscaling_group")
    assert planned.one("plain", "aws_launch_template")["instance_market_options"] == []


def test_placement_groups_where_asked_for(planned: Planned) -> None:
    made = {pool: list(planned.all(pool, "aws_placement_group")) for pool in POOLS}
    assert {pool: kinds for pool, kinds in made.items() if kinds} == {
        "several": ["partition"],
        "spot": ["spread"],
        "p4d": ["cluster"],
        "old": ["partition"],
    }
    assert planned.one("p4d", "aws_autoscaling_group")["placement_group"] == "lab-p4d-cluster"
    assert planned.one("plain", "aws_autoscaling_group")["placement_group"] is None


def test_a_warm_pool_that_hibernates(planned: Planned) -> None:
    (pool,) = planned.one("warm", "aws_autoscaling_group")["warm_pool"]
    assert (pool["pool_state"], pool["min_size"], pool["max_group_prepared_capacity"]) == ("Hibernated", 1, 4)
    assert pool["instance_reuse_policy"] == [{"reuse_on_scale_in": False}]
    assert planned.one("warm", "aws_launch_template")["hibernation_options"] == [{"configured": True}]
    assert planned.one("plain", "aws_launch_template")["hibernation_options"] == []


def test_a_launch_configuration_takes_the_place_of_the_template(planned: Planned) -> None:
    assert planned.all("old", "aws_launch_template") == {}
    configuration = planned.one("old", "aws_launch_configuration")
    assert (configuration["instance_type"], configuration["name_prefix"]) == ("p2.xlarge", "lab-old-")
    assert [disk["device_name"] for disk in configuration["ebs_block_device"]] == ["/dev/sdf"]
    assert "mixed_instances_policy" not in planned.one("old", "aws_autoscaling_group")
    assert planned.one("old-spot", "aws_launch_configuration")["spot_price"] == "0.5"
    assert planned.one("old-spot", "aws_autoscaling_group")["capacity_rebalance"] is True
    assert planned.outputs["old"]["after"]["launch_template_id"] is None


def test_masters_behind_an_internal_balancer(planned: Planned) -> None:
    masters = planned.all("control_plane", "aws_instance")
    assert {name: master["tags"]["Name"] for name, master in masters.items()} == {
        f"master_{index}": f"lab-us-west-2-master-{index}" for index in (1, 2, 3)
    }
    assert all(master["disable_api_termination"] for master in masters.values())
    balancer = planned.one("control_plane", "aws_lb")
    assert (balancer["internal"], balancer["load_balancer_type"]) == (True, "network")
    assert balancer["enable_cross_zone_load_balancing"] is True
    assert balancer["security_groups"] == ["sg-balancer"]
    group = planned.one("control_plane", "aws_lb_target_group")
    assert (group["protocol"], group["port"], group["preserve_client_ip"]) == ("TCP", 6443, "false")
    assert list(planned.all("control_plane", "aws_lb_target_group_attachment")) == list(masters)


def test_only_gateways_forward_and_only_public_machines_have_addresses(planned: Planned) -> None:
    machines = planned.all("access", "aws_instance")
    assert {name: one["source_dest_check"] for name, one in machines.items()} == {
        "gateway": False,
        "inner": True,
        "open": True,
    }
    assert machines["gateway"]["vpc_security_group_ids"] == ["sg-ssh", "sg-vpn"]
    assert machines["inner"]["vpc_security_group_ids"] == ["sg-ssh"]
    assert machines["inner"]["iam_instance_profile"] == "lab-ssh-node"
    assert sorted(planned.all("access", "aws_eip")) == ["gateway", "open"]


def test_ssh_is_open_where_the_instance_says_so_and_nowhere_else(planned: Planned) -> None:
    assert list(planned.all("access", "aws_security_group")) == ["open"]
    rules = planned.all("access", "aws_vpc_security_group_ingress_rule").values()
    assert sorted(rule["cidr_ipv4"] for rule in rules) == ["198.51.100.0/24", "203.0.113.7/32"]
    assert {(rule["from_port"], rule["to_port"], rule["ip_protocol"]) for rule in rules} == {(22, 22, "tcp")}
