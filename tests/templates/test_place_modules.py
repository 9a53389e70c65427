"""identity, storage, dns, network, VPN, peering and transit gateways, planned by real Terraform.

moto answers what a plan reads: the account, and a hosted zone that exists already.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from permissions.policy import Request, allowing, read

from infra.catalogue import regions, security_groups
from infra.catalogue.policies import MOST, of_nodes
from infra.drive.engine import Engine, find_engine
from infra.drive.terraform import SILENT

MODULES = Path(__file__).parents[2] / "templates" / "terraform" / "modules"
NAMES = (
    "identity", "storage", "dns", "network", "vpn_gateway", "vpn_connections", "peering", "transit_gateway",
    "transit_peering", "tracking_database",
)  # fmt: skip


TAGS = {"cluster": "lab", "environment": "test", "managed-by": "causeway"}
ZONES = ("us-west-2a", "us-west-2b")
INSIDE = ["10.0.0.0/8", "100.64.0.0/16"]
WEST, EAST = {"aws": "aws.west"}, {"aws": "aws.east"}
BOTH = {"aws.requester": "aws.west", "aws.accepter": "aws.east"}

NETWORK: dict[str, Any] = {
    "source": "./modules/network",
    "name": "lab-us-west-2",
    "tags": TAGS,
    "block": "10.1.0.0/16",
    "subnets": {
        f"{tier}-{zone}": {"tier": tier, "zone": zone, "block": f"10.1.{16 * (3 * number + index)}.0/20"}
        for number, zone in enumerate(ZONES)
        for index, tier in enumerate(("public", "private", "pods"))
    },
    "nat": dict.fromkeys(ZONES, ZONES[0]),
    "inside": INSIDE,
    "flow_logs": {},
    "gateway_endpoints": {"s3": "com.amazonaws.us-west-2.s3"},
    "interface_endpoints": {"ssm": "com.amazonaws.us-west-2.ssm"},
}

VPN_GATEWAY: dict[str, Any] = {
    "source": "./modules/vpn_gateway",
    "name": "lab-vpn",
    "tags": TAGS,
    "vpc_id": "vpc-1",
    "asn": 64512,
    "route_tables": {"private-us-west-2a": "rtb-a", "private-us-west-2b": "rtb-b"},
}
VPN: dict[str, Any] = {
    "source": "./modules/vpn_connections",
    "name": "lab-vpn",
    "tags": TAGS,
    "vpn_gateway_id": "vgw-1",
    "customer_gateways": {
        "rack-a": {"address": "198.51.100.7", "asn": 65010, "tags": {"site": "rack-a"}},
        "rack-b": {"address": "198.51.100.8", "asn": 4200000001},
    },
    "connections": {
        "by-bgp": {
            "customer_gateway": "rack-a",
            "tunnels": [
                {"inside": "169.254.10.0/30", "key": "a/1"},
                {"inside": "169.254.10.4/30", "key": "a/2"},
            ],
        },
        "behind-nat": {
            "customer_gateway": "rack-b",
            "static_routes": ["10.9.0.0/24", "10.9.1.0/24"],
            "startup_action": "add",
            "tunnels": [
                {"inside": "169.254.10.8/30", "key": "a/1"},
                {"inside": "169.254.10.12/30", "key": "a/2"},
            ],
        },
    },
    "tunnel_keys": {"a/1": "one.pre_shared.key", "a/2": "another.pre_shared.key"},
}

STORAGE: dict[str, Any] = {
    "source": "./modules/storage",
    "name": "lab-us-west-2",
    "tags": TAGS,
    "security_group_ids": ["sg-efs"],
    "client_roles": [f"arn:aws:iam::123456789012:role/lab-{role}" for role in ("node", "ssh-node")],
    "root_roles": ["arn:aws:iam::123456789012:role/lab-ssh-node"],
    "file_systems": {
        "home": {
            "name": "lab-us-west-2-home",
            "archive_after_days": 30,
            "access_points": {
                "shared": {"path": "/shared", "uid": 1000, "gid": 100, "mode": "0775"},
                "homes": {"path": "/homes", "uid": 0, "gid": 0},
            },
            "subnet_ids": {"us-west-2a": "subnet-a", "us-west-2b": "subnet-b"},
            "root_roles": ["arn:aws:iam::123456789012:role/lab-node"],
            "tags": {"role": "storage"},
        },
        "scratch": {
            "name": "scratch-" * 20,
            "performance": "maxIO",
            "throughput": "bursting",
            "backup": False,
            "subnet_ids": {"us-west-2a": "subnet-a"},
        },
    },
    "buckets": {
        "data": {"bucket": "lab-data", "versions_days": 7, "archive_days": 60, "expire": {"": 365}},
        "models": {"bucket": "lab-models"},
        "work": {"bucket": "lab-work", "expire": {"code/": 90, "runs/": 365}},
    },
}

IDENTITY: dict[str, Any] = {
    "source": "./modules/identity",
    "name": "lab",
    "tags": TAGS,
    "cluster": "lab",
    "secrets_prefix": "/causeway/lab",
    "regions": ["us-east-1", "us-west-2"],
    "buckets": {
        "data": {"bucket": "lab-data", "read_only": True},
        "models": {"bucket": "lab-models", "read_only": False},
    },
    "snapshots": {"bucket": "lab-snapshots"},
    "audit_log": {"bucket": "lab-audit"},
    "image_repositories": ["lab/*"],
}

KEY = "arn:aws:kms:us-west-2:123456789012:key/mrk-0123456789abcdef0123456789abcdef"

EVERYWHERE = [name for name in regions.names() if not name.startswith(("cn-", "us-gov-"))][:30]
"""As many regions as an account of the partition ``aws`` may well be in."""

LONG = 'he said "' + "x" * 300 + '"'
DNS: dict[str, Any] = {
    "source": "./modules/dns",
    "tags": TAGS,
    "zone": "lab.internal",
    "ttl": 60,
    "primary_vpc": {"id": "vpc-1", "region": "us-west-2"},
    "vpcs": {"us_east_1": {"id": "vpc-2", "region": "us-east-1"}},
    "records": {
        "node-1": {"name": "node-1.lab.internal", "type": "A", "values": ["10.9.0.4"]},
        "zero": {"name": "zero.lab.internal", "type": "A", "values": ["10.9.0.5"], "ttl": 0},
        "note": {"name": "note.lab.internal", "type": "TXT", "values": ["short", LONG]},
    },
    "aliases": {"api": {"name": "api.lab.internal", "target": "lb.example.org", "target_zone_id": "Z1"}},
    "public": {"zone": "example.org"},
    "public_records": {"vpn": {"name": "vpn.example.org", "type": "A", "values": ["203.0.113.5"]}},
}
ADOPTED = {**DNS, "public": {"zone": "adopted.example", "id": "${var.existing_zone}"}, "public_records": {}}

PEERING: dict[str, Any] = {
    "source": "./modules/peering",
    "name": "lab-west-east",
    "tags": TAGS,
    "requester": {"vpc_id": "vpc-1", "block": "10.1.0.0/16", "route_tables": {"a": "rtb-1", "b": "rtb-2"}},
    "accepter": {"vpc_id": "vpc-2", "block": "10.2.0.0/16", "route_tables": {"c": "rtb-3"}},
}
TRANSIT: dict[str, Any] = {
    "source": "./modules/transit_gateway",
    "name": "lab-west",
    "tags": TAGS,
    "asn": 64520,
    "vpc_id": "vpc-1",
    "subnets": {"private-us-west-2a": "subnet-a", "private-us-west-2b": "subnet-b"},
    "route_tables": {"public": "rtb-a", "private-us-west-2a": "rtb-b"},
    "lans": ["10.8.0.0/22", "192.168.64.0/22"],
}
JOINED = {"id": "${module.transit_gateway.id}", "route_table": "${module.transit_gateway.route_table}"}
TRANSIT_PEERING: dict[str, Any] = {
    "source": "./modules/transit_peering",
    "name": "lab-west-east",
    "tags": TAGS,
    "requester": {
        "transit_gateway_id": "tgw-1", "transit_route_table": "tgw-rtb-1", "block": "10.1.0.0/16",
        "route_tables": {"a": "rtb-1"},
    },
    "accepter": {
        "transit_gateway_id": "tgw-2", "transit_route_table": "tgw-rtb-2", "block": "10.2.0.0/16",
        "lans": ["10.8.0.0/22", "192.168.64.0/22"],
        "route_tables": {"b": "rtb-2"},
    },
}  # fmt: skip


DATABASE: dict[str, Any] = {
    "source": "./modules/tracking_database",
    "name": "lab-mlflow",
    "tags": TAGS,
    "vpc_id": "vpc-1",
    "subnet_ids": ["subnet-a", "subnet-b"],
    "client_security_groups": {"control-plane": "sg-1", "node": "sg-2"},
    "instance_class": "db.t4g.small",
    "storage_gib": 20,
    "storage_limit_gib": 100,
    "multi_az": False,
    "backup_days": 14,
    "password": "not-a-real-one",
}


EXISTING_ZONE = {"existing_zone": {"type": "string"}}


def connection(**changes: Any) -> dict[str, Any]:
    return {"connections": {"one": VPN["connections"]["by-bgp"] | changes}}


def tunnels(first: str, second: str) -> dict[str, Any]:
    return connection(tunnels=[{"inside": first, "key": "a/1"}, {"inside": second, "key": "a/2"}])


def file_system(**changes: Any) -> dict[str, Any]:
    return {"file_systems": {"one": {"name": "one", "subnet_ids": {}} | changes}}


def bucket(**changes: Any) -> dict[str, Any]:
    return {"buckets": {"one": {"bucket": "lab-one"} | changes}}


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "vpc-too-large": (NETWORK, {"block": "10.0.0.0/8"}, "from /16 to /28"),
    "vpc-host-bits": (NETWORK, {"block": "10.1.2.0/16"}, "written by its first address"),
    "two-of-a-tier": (
        NETWORK,
        {"subnets": {name: {"tier": "pods", "zone": "z", "block": "10.1.0.0/20"} for name in "ab"}},
        "one subnet of each tier in a zone",
    ),
    "inside-everything": (NETWORK, {"inside": ["0.0.0.0/0"]}, "never the whole internet"),
    "ssh-for-all": (
        NETWORK,
        {"vpn_ports": {"ssh": {"protocol": "tcp", "port": 22}}},
        "SSH and remote desktop",
    ),
    "public-asn": (VPN_GATEWAY, {"asn": 15169}, "Amazon's ASN is a private one"),
    "bad-key": (VPN, {"tunnel_keys": {"a/1": "01234567", "a/2": "12345678"}}, "does not start with 0"),
    "not-link-local": (VPN, tunnels("10.0.0.0/30", "169.254.9.0/30"), "a /30 of 169.254.0.0/16"),
    "amazons-own": (VPN, tunnels("169.254.169.252/30", "169.254.9.0/30"), "for itself"),
    "amazons-first": (VPN, tunnels("169.254.5.0/30", "169.254.9.0/30"), "for itself"),
    "inside-twice": (VPN, tunnels("169.254.9.0/30", "169.254.9.0/30"), "inside block of its own"),
    "rekey-too-late": (VPN, {"proposals": {"phase2_lifetime": 900}}, "half of phase 2's lifetime"),
    "max-io-elastic": (STORAGE, file_system(performance="maxIO"), "no elastic throughput"),
    "archive-when": (STORAGE, file_system(archive_after_days=31), "EFS archives after"),
    "access-point": (
        STORAGE,
        file_system(access_points={"x": {"path": "x", "uid": 0, "gid": 0}}),
        "an absolute path and an octal mode",
    ),
    "bucket-name": (STORAGE, bucket(bucket="Lab"), "3 to 63 lower-case"),
    "expires-first": (STORAGE, bucket(archive_days=90, expire={"": 30}), "archived before they expire"),
    "role-name": (IDENTITY, {"name": "x" * 50}, "1 to 49 letters"),
    "open-prefix": (IDENTITY, {"secrets_prefix": "/causeway/*"}, "begins with a slash"),
    "one-zone": (DATABASE, {"subnet_ids": ["subnet-a"]}, "subnets in two zones"),
    "class-of-ec2": (DATABASE, {"instance_class": "t4g.small"}, "begins with db."),
    "no-backups": (DATABASE, {"backup_days": 0}, "for 1 to 35 days"),
    "two-cnames": (
        DNS,
        {"records": {"x": {"name": "x.lab.internal", "type": "CNAME", "values": ["a", "b"]}}},
        "A CNAME record has one value",
    ),
}
"""Calls that `terraform validate` refuses: module, what is changed in a good call, what is said."""

UNFIT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nat-in-no-zone": (
        NETWORK,
        {"nat": {"us-west-2a": "us-west-2c"}},
        "nat: us-west-2c has no public subnet",
    ),
    "no-such-gateway": (VPN, connection(customer_gateway="rack-z"), "one names the customer gateway rack-z"),
    "no-such-key": (VPN, {"tunnel_keys": {"a/1": "one.pre_shared.key"}}, "tunnel_keys lacks a key"),
    "efs-without-group": (STORAGE, {"security_group_ids": []}, "mount targets without a group of their own"),
    "no-public-zone": (DNS, {"public": None}, "vpn.example.org needs a public zone"),
    "another-zone": (
        DNS,
        {"public": {"zone": "example.net", "id": "${var.existing_zone}"}, "public_records": {}},
        "is adopted.example, not the public example.net",
    ),
}
"""Calls whose values are each good, but not together: refused by the plan."""


def root() -> dict[str, Any]:
    """A root module that calls everything."""
    return {
        "terraform": {"required_version": ">= 1.6"},
        "provider": {
            "aws": [{"alias": "west", "region": "us-west-2"}, {"alias": "east", "region": "us-east-1"}]
        },
        "variable": EXISTING_ZONE,
        "module": {
            "network": NETWORK | {"providers": WEST},
            "closed": NETWORK | {"providers": EAST, "vpn_ports": {}, "nat": {}, "flow_logs": None},
            "vpn_gateway": VPN_GATEWAY | {"providers": WEST},
            "vpn": VPN | {"providers": WEST},
            "vpn_transit": VPN | {"providers": WEST, "vpn_gateway_id": None, "transit_gateway": JOINED},
            "storage": STORAGE | {"providers": WEST},
            "encrypted": STORAGE | {"providers": WEST, "kms_key": KEY},
            "identity": IDENTITY | {"providers": WEST},
            "no_buckets": IDENTITY
            | {
                "providers": WEST,
                "buckets": {},
                "snapshots": None,
                "audit_log": None,
                "image_repositories": None,
            },
            "everywhere": IDENTITY
            | {
                "providers": WEST,
                "regions": EVERYWHERE,
                "volumes_region": "us-west-2",
                "kms_keys": [KEY],
            },
            "dns": DNS | {"providers": WEST},
            "adopted": ADOPTED | {"providers": WEST},
            "no_public": DNS | {"providers": WEST, "public": None, "public_records": {}},
            "peering": PEERING | {"providers": BOTH},
            "transit_gateway": TRANSIT | {"providers": WEST},
            "transit_peering": TRANSIT_PEERING | {"providers": BOTH},
            "database": DATABASE | {"providers": WEST},
        },
        "output": {name: {"value": f"${{module.{name}}}"} for name in ("adopted", "no_public")},
    }


@dataclass(frozen=True)
class Root:
    folder: Path
    engine: Engine
    environment: dict[str, str]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.engine.argv, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


@dataclass(frozen=True)
class Planned:
    modules: dict[str, list[dict[str, Any]]]
    outputs: dict[str, Any]
    said: str

    def all(self, module: str, kind: str) -> dict[str, dict[str, Any]]:
        """Planned resources of a type: name and index → values that are known."""
        return {
            one["address"].split(f"{kind}.", 1)[1]: one.get("values", {})
            for one in self.modules[module]
            if one["type"] == kind and one["mode"] == "managed"
        }

    def policies(self, module: str, role: str) -> dict[str, dict[str, Any]]:
        """A role's statements by their id."""
        name = IDENTITY["name"]
        return {
            statement["Sid"]: statement
            for policy in self.all(module, "aws_iam_role_policy").values()
            if policy["role"] == f"{name}-{role}"
            for statement in listed(json.loads(policy["policy"])["Statement"])
        }


def listed(one_or_more: Any) -> list[Any]:
    return one_or_more if isinstance(one_or_more, list) else [one_or_more]


def prepared(folder: Path, calls: dict[str, Any], environment: dict[str, str]) -> Root:
    (folder / "modules").symlink_to(MODULES)
    (folder / "main.tf.json").write_text(json.dumps(calls, indent=1))
    made = Root(folder, find_engine(), environment)
    done = made("init", "-input=false", "-no-color")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Environment variables that lead to moto, where one hosted zone exists."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        route53 = boto3.client(
            "route53",
            region_name="us-west-2",
            endpoint_url=f"http://{host}:{port}",
            aws_access_key_id="none",
            aws_secret_access_key="none",
        )
        zone = route53.create_hosted_zone(Name="adopted.example", CallerReference="a")["HostedZone"]["Id"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_VAR_"))}
        yield kept | {
            **SILENT,
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "TF_VAR_existing_zone": zone.removeprefix("/hostedzone/"),
        }
    finally:
        server.stop()


@pytest.fixture(scope="module")
def terraform(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Root:
    return prepared(tmp_path_factory.mktemp("places"), root(), environment)


@pytest.fixture(scope="module")
def planned(terraform: Root) -> Planned:
    done = terraform("plan", "-input=false", "-no-color", "-out=plan")
    assert done.returncode == 0, done.stderr
    plan = json.loads(terraform("show", "-json", "plan").stdout)
    modules = plan["planned_values"]["root_module"]["child_modules"]
    return Planned(
        {module["address"].removeprefix("module."): module["resources"] for module in modules},
        plan["output_changes"],
        " ".join(done.stdout.replace("│", "").split()),
    )


def test_interface_endpoints_are_named_as_services_are_and_let_in_the_vpc_alone(planned: Planned) -> None:
    endpoint = planned.all("network", "aws_vpc_endpoint")['interface["ssm"]']
    assert endpoint["service_name"] == "com.amazonaws.us-west-2.ssm"
    assert endpoint["private_dns_enabled"]
    (rule,) = (
        one
        for name, one in planned.all("network", "aws_vpc_security_group_ingress_rule").items()
        if name.startswith("endpoints")
    )
    assert (rule["cidr_ipv4"], rule["from_port"], rule["to_port"]) == ("10.1.0.0/16", 443, 443)


def test_modules_are_formatted_and_plan_without_a_warning(terraform: Root, planned: Planned) -> None:
    assert "Warning" not in planned.said
    done = terraform("fmt", "-check", "-diff", *(f"modules/{name}/" for name in NAMES))
    assert (done.returncode, done.stdout) == (0, "")


def test_wrong_values_are_refused_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    calls = {name: module | changes for name, (module, changes, _) in WRONG.items()}
    refused = prepared(tmp_path, {"module": calls}, environment)("validate", "-json")
    said = [each["detail"] for each in json.loads(refused.stdout)["diagnostics"]]
    assert [name for name, (_, _, text) in WRONG.items() if not any(text in each for each in said)] == []
    assert len(said) == len(WRONG)


def test_what_does_not_go_together_is_refused_before_anything_is_made(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    calls = {name: module | changes for name, (module, changes, _) in UNFIT.items()}
    calls = {"provider": {"aws": {"region": "us-west-2"}}, "variable": EXISTING_ZONE, "module": calls}
    done = prepared(tmp_path, calls, environment)("plan", "-input=false", "-no-color")
    assert done.returncode == 1
    said = " ".join((done.stdout + done.stderr).replace("│", "").split())
    assert [name for name, (_, _, message) in UNFIT.items() if message not in said] == []


def test_stateful_things_are_guarded() -> None:
    text = "".join(path.read_text() for name in NAMES for path in sorted((MODULES / name).glob("*.tf")))
    resources = dict(re.findall(r'^resource "(\w+" "\w+)" \{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL))
    guarded = {
        name.replace('" "', ".") for name, body in resources.items() if "prevent_destroy = true" in body
    }
    assert guarded == {
        "aws_db_instance.this", "aws_efs_file_system.this", "aws_eip.nat", "aws_route53_zone.private",
        "aws_route53_zone.public", "aws_s3_bucket.this", "aws_vpc.this", "aws_vpn_gateway.this",
    }  # fmt: skip


def test_variables_and_outputs_say_what_they_are() -> None:
    for name in NAMES:
        for path in sorted((MODULES / name).glob("*.tf")):
            for kind, what, body in re.findall(
                r'^(variable|output) "(\w+)" \{\n(.*?)^\}', path.read_text(), re.MULTILINE | re.DOTALL
            ):
                assert "  description = " in body.replace("description  ", "description "), (path, what)
                assert kind == "output" or re.search(r"^  type +=", body, re.MULTILINE), (path, what)


def test_everything_is_tagged(planned: Planned) -> None:
    seen = 0
    for module, resources in planned.modules.items():
        for one in resources:
            if one["mode"] == "managed" and "tags" in one.get("values", {}):
                tags = one["values"]["tags"]
                assert tags is not None, (module, one["address"])
                assert tags.items() >= TAGS.items(), one["address"]
                seen += 1
    assert seen > 100


# -- the database of MLflow --------------------------------------------------------------------------------


def test_the_database_is_closed_encrypted_and_kept(planned: Planned) -> None:
    database = planned.all("database", "aws_db_instance")["this"]
    assert not database["publicly_accessible"]
    assert database["storage_encrypted"]
    assert database["deletion_protection"]
    assert not database["delete_automated_backups"]
    rules = planned.all("database", "aws_vpc_security_group_ingress_rule").values()
    assert {(rule["referenced_security_group_id"], rule["from_port"], rule["to_port"]) for rule in rules} == {
        ("sg-1", 5432, 5432),
        ("sg-2", 5432, 5432),
    }
    assert all(rule["cidr_ipv4"] is None for rule in rules)
    (parameters,) = planned.all("database", "aws_db_parameter_group").values()
    assert {"rds.force_ssl": "1"}.items() <= {
        each["name"]: each["value"] for each in parameters["parameter"]
    }.items()


# -- network ----------------------------------------------------------------------------------------------


def test_nothing_but_the_vpn_is_open_to_the_world(planned: Planned) -> None:
    def world(module: str) -> set[tuple[str, int, str]]:
        rules = planned.all(module, "aws_vpc_security_group_ingress_rule")
        return {
            (rule["ip_protocol"], rule["from_port"], rule["tags"]["Name"])
            for rule in rules.values()
            if rule["cidr_ipv4"] == "0.0.0.0/0"
        }

    assert world("network") == {("udp", 1194, "openvpn-udp"), ("tcp", 443, "openvpn-tcp")}
    assert world("closed") == set()


def test_every_block_of_the_inside_reaches_the_api(planned: Planned) -> None:
    rules = planned.all("network", "aws_vpc_security_group_ingress_rule")
    api = [rule for name, rule in rules.items() if "control-plane-api" in name]
    assert sorted(rule["cidr_ipv4"] for rule in api) == INSIDE
    assert {(rule["from_port"], rule["to_port"]) for rule in api} == {(6443, 6443)}


@pytest.mark.parametrize(("module", "world"), [("network", 2), ("closed", 0)])
def test_the_rules_of_each_group_are_as_many_as_checks_count(
    planned: Planned, module: str, world: int
) -> None:
    counted = security_groups.inbound(len(INSIDE), 1, world)
    rules = Counter(
        "vpn" if name.startswith("world") else next(one for one in counted if f'["{one}-' in name)
        for name in planned.all(module, "aws_vpc_security_group_ingress_rule")
        if not name.startswith("endpoints")
    )
    assert rules == counted


def test_prometheus_on_a_master_reaches_what_it_asks_machines_for(planned: Planned) -> None:
    rules = planned.all("network", "aws_vpc_security_group_ingress_rule")

    def let_in(group: str, port: int) -> bool:
        return any(
            f'["{group}-' in name and rule["from_port"] <= port <= rule["to_port"]
            for name, rule in rules.items()
            if rule["ip_protocol"] == "tcp"
        )

    # The node exporter, kube-proxy, the kubelet, the exporter of cards.
    assert all(let_in("ssh", port) for port in (9100, 10249, 10250, 9400))
    # etcd, the controller manager, the scheduler, of the other masters.
    assert all(let_in("control-plane", port) for port in (2381, 10257, 10259))


def test_machines_with_adapters_reach_each_other_by_their_own_group(planned: Planned) -> None:
    """EFA wants all traffic in and out allowed for the group itself: blocks do not do (EC2 User Guide, "Get
    started with EFA", an EFA-enabled security group)."""
    for kind in ("ingress", "egress"):
        rule = planned.all("network", f"aws_vpc_security_group_{kind}_rule")['group["node-node"]']
        assert rule["ip_protocol"] == "-1"
        assert (rule["from_port"], rule["to_port"], rule.get("cidr_ipv4")) == (None, None, None)
    text = (MODULES / "network/security_groups.tf").read_text()
    assert text.count('node-node              = { group = "node", target = "node"') == 1
    assert text.count('node-node = { group = "node", source = "node"') == 1


def test_each_zone_goes_out_through_its_nat_gateway(planned: Planned) -> None:
    assert set(planned.all("network", "aws_nat_gateway")) == {'this["us-west-2a"]'}
    assert set(planned.all("network", "aws_route")) == {
        'internet["public"]',
        'nat["us-west-2a"]',
        'nat["us-west-2b"]',
    }
    assert set(planned.all("closed", "aws_route")) == {'internet["public"]'}
    assert set(planned.all("network", "aws_route_table")) == {
        'this["public"]',
        'this["private-us-west-2a"]',
        'this["private-us-west-2b"]',
    }


def test_no_machine_gets_a_public_address_by_itself(planned: Planned) -> None:
    subnets = planned.all("network", "aws_subnet").values()
    assert [subnet["map_public_ip_on_launch"] for subnet in subnets] == [False] * 6


def test_flow_logs_come_with_a_role_that_only_this_account_can_have_used(planned: Planned) -> None:
    (role,) = planned.all("network", "aws_iam_role").values()
    assert role["name"] == "lab-us-west-2-flow-logs"
    (statement,) = listed(json.loads(role["assume_role_policy"])["Statement"])
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "123456789012"}}
    assert planned.all("closed", "aws_flow_log") == {}


# -- VPN --------------------------------------------------------------------------------------------------


def test_tunnels_accept_nothing_old(planned: Planned) -> None:
    for one in planned.all("vpn", "aws_vpn_connection").values():
        for tunnel in ("tunnel1", "tunnel2"):
            assert one[f"{tunnel}_ike_versions"] == ["ikev2"]
            for phase in ("phase1", "phase2"):
                assert one[f"{tunnel}_{phase}_encryption_algorithms"] == ["AES256-GCM-16"]
                assert set(one[f"{tunnel}_{phase}_dh_group_numbers"]) == {19, 20, 21}
                assert "SHA1" not in one[f"{tunnel}_{phase}_integrity_algorithms"]


def test_bgp_or_static_routes_and_who_begins(planned: Planned) -> None:
    connections = planned.all("vpn", "aws_vpn_connection")
    bgp, static = connections['this["by-bgp"]'], connections['this["behind-nat"]']
    assert (bgp["static_routes_only"], static["static_routes_only"]) == (False, True)
    assert (bgp["tunnel1_startup_action"], bgp["tunnel1_dpd_timeout_action"]) == ("start", "restart")
    # AWS can't call back a gateway that hides behind NAT.
    assert (static["tunnel2_startup_action"], static["tunnel2_dpd_timeout_action"]) == ("add", "clear")
    assert (bgp["tunnel1_inside_cidr"], bgp["tunnel2_inside_cidr"]) == ("169.254.10.0/30", "169.254.10.4/30")
    assert set(planned.all("vpn", "aws_vpn_connection_route")) == {
        'this["behind-nat 10.9.0.0/24"]',
        'this["behind-nat 10.9.1.0/24"]',
    }


def test_a_connection_to_a_transit_gateway_has_its_static_routes_there(planned: Planned) -> None:
    connections = planned.all("vpn_transit", "aws_vpn_connection")
    assert set(connections) == {'this["by-bgp"]', 'this["behind-nat static"]'}
    assert {one["vpn_gateway_id"] for one in connections.values()} == {None}
    assert connections['this["behind-nat static"]']["tags"]["Name"] == "lab-vpn-behind-nat"
    assert planned.all("vpn_transit", "aws_vpn_connection_route") == {}
    routes = planned.all("vpn_transit", "aws_ec2_transit_gateway_route")
    assert set(routes) == {'this["10.9.0.0/24"]', 'this["10.9.1.0/24"]'}
    assert planned.all("vpn", "aws_ec2_transit_gateway_route") == {}


def test_large_as_numbers_go_where_aws_wants_them(planned: Planned) -> None:
    gateways = planned.all("vpn", "aws_customer_gateway")
    small, large = gateways['this["rack-a"]'], gateways['this["rack-b"]']
    assert (small["bgp_asn"], small["bgp_asn_extended"]) == ("65010", None)
    assert (large["bgp_asn"], large["bgp_asn_extended"]) == (None, "4200000001")
    assert small["tags"]["site"] == "rack-a"
    assert [small["device_name"], large["device_name"]] == ["lab-vpn-rack-a", "lab-vpn-rack-b"]


# -- Between regions --------------------------------------------------------------------------------------


def test_peered_regions_have_routes_both_ways(planned: Planned) -> None:
    for module in ("peering", "transit_peering"):
        routes = planned.all(module, "aws_route")
        blocks = {name.partition("[")[0]: route["destination_cidr_block"] for name, route in routes.items()}
        assert blocks == {"requester": "10.2.0.0/16", "accepter": "10.1.0.0/16"}
    assert len(planned.all("peering", "aws_route")) == 3
    transit = planned.all("transit_peering", "aws_ec2_transit_gateway_route")
    assert {name: route["destination_cidr_block"] for name, route in transit.items()} == {
        "requester": "10.2.0.0/16",
        "accepter": "10.1.0.0/16",
        'requester_lan["10.8.0.0/22"]': "10.8.0.0/22",
        'requester_lan["192.168.64.0/22"]': "192.168.64.0/22",
    }


def test_a_transit_gateway_leads_to_sites(planned: Planned) -> None:
    (gateway,) = planned.all("transit_gateway", "aws_ec2_transit_gateway").values()
    assert gateway["vpn_ecmp_support"] == "enable"
    assert set(planned.all("transit_gateway", "aws_route")) == {
        f'site["{table} {lan}"]'
        for table in ("public", "private-us-west-2a")
        for lan in ("10.8.0.0/22", "192.168.64.0/22")
    }


# -- storage ----------------------------------------------------------------------------------------------


def test_file_systems(planned: Planned) -> None:
    systems = planned.all("storage", "aws_efs_file_system")
    home, scratch = systems['this["home"]'], systems['this["scratch"]']
    assert home["encrypted"] is scratch["encrypted"] is True
    assert (home["throughput_mode"], scratch["throughput_mode"]) == ("elastic", "bursting")
    moves = [
        (each["transition_to_ia"], each["transition_to_primary_storage_class"])
        for each in home["lifecycle_policy"]
    ]
    assert moves == [("AFTER_30_DAYS", None), (None, "AFTER_1_ACCESS")]
    assert scratch["lifecycle_policy"] == []
    assert home["tags"] == {**TAGS, "role": "storage", "Name": "lab-us-west-2-home"}
    assert len(scratch["creation_token"]) == 64
    assert scratch["tags"]["Name"] == "scratch-" * 20
    targets = planned.all("storage", "aws_efs_mount_target")
    assert {name: target["subnet_id"] for name, target in targets.items()} == {
        'this["home us-west-2a"]': "subnet-a",
        'this["home us-west-2b"]': "subnet-b",
        'this["scratch us-west-2a"]': "subnet-a",
    }
    assert all(target["security_groups"] == ["sg-efs"] for target in targets.values())
    points = planned.all("storage", "aws_efs_access_point")
    point, homes = points['this["home shared"]'], points['this["home homes"]']
    assert (point["posix_user"][0]["uid"], point["root_directory"][0]["path"]) == (1000, "/shared")
    assert point["root_directory"][0]["creation_info"][0]["permissions"] == "0775"
    assert homes["posix_user"] == []
    assert homes["root_directory"][0]["creation_info"][0]["owner_uid"] == 0
    assert set(planned.all("storage", "aws_efs_backup_policy")) == {'this["home"]'}
    assert len(planned.all("storage", "aws_efs_file_system_policy")) == 2


def test_a_file_system_is_for_the_roles_that_are_named_and_its_root_for_fewer(planned: Planned) -> None:
    documents = [
        one["values"]["statement"]
        for one in planned.modules["storage"]
        if one["mode"] == "data" and one["address"].split(".")[-1].startswith("file_system[")
    ]
    assert len(documents) == 2
    named = []
    for statements in documents:
        by_id = {statement["sid"]: statement for statement in statements}
        assert set(by_id) == {"MountByMachines", "RootOfSome", "OnlyOverTls"}
        (client,) = by_id["MountByMachines"]["principals"]
        assert set(client["identifiers"]) == {*STORAGE["client_roles"]}
        rooted = [sid for sid, one in by_id.items() if "elasticfilesystem:ClientRootAccess" in one["actions"]]
        assert rooted == ["RootOfSome"]
        (principal,) = by_id["RootOfSome"]["principals"]
        named.append(set(principal["identifiers"]))
    everywhere = {*STORAGE["root_roles"]}
    assert sorted(named, key=len) == [
        everywhere,
        everywhere | {*STORAGE["file_systems"]["home"]["root_roles"]},
    ]


def test_buckets(planned: Planned) -> None:
    for kind in (
        "public_access_block", "ownership_controls", "versioning", "policy",
        "server_side_encryption_configuration", "lifecycle_configuration",
    ):  # fmt: skip
        assert len(planned.all("storage", f"aws_s3_bucket_{kind}")) == 3
    for closed in planned.all("storage", "aws_s3_bucket_public_access_block").values():
        assert all(closed[name] for name in closed if name.startswith(("block_", "ignore_", "restrict_")))
    cycles = planned.all("storage", "aws_s3_bucket_lifecycle_configuration")
    data = {rule["id"]: rule for rule in cycles['this["data"]']["rule"]}
    assert set(data) == {"old-versions", "leftovers", "archive", "expire"}
    assert data["old-versions"]["noncurrent_version_expiration"][0]["noncurrent_days"] == 7
    assert (data["archive"]["transition"][0]["days"], data["archive"]["transition"][0]["storage_class"]) == (
        60,
        "GLACIER_IR",
    )
    assert data["expire"]["expiration"][0]["days"] == 365
    assert [rule["id"] for rule in cycles['this["models"]']["rule"]] == ["old-versions", "leftovers"]
    folders = {
        rule["filter"][0]["prefix"]: rule["expiration"][0]["days"]
        for rule in cycles['this["work"]']["rule"]
        if rule["id"].startswith("expire-")
    }
    assert folders == {"code/": 90, "runs/": 365}


def test_a_key_encrypts_file_systems_and_buckets(planned: Planned) -> None:
    for module, key, algorithm in (("storage", None, "AES256"), ("encrypted", KEY, "aws:kms")):
        systems = planned.all(module, "aws_efs_file_system").values()
        assert {system.get("kms_key_id") for system in systems} == {key}
        kind = "aws_s3_bucket_server_side_encryption_configuration"
        for encryption in planned.all(module, kind).values():
            [rule] = encryption["rule"]
            assert rule["bucket_key_enabled"] is (key and True)
            [default] = rule["apply_server_side_encryption_by_default"]
            assert (default["sse_algorithm"], default["kms_master_key_id"] or None) == (algorithm, key)


# -- identity ---------------------------------------------------------------------------------------------


def test_four_roles_with_a_profile_each(planned: Planned) -> None:
    names = {f"lab-{role}" for role in ("node", "control-plane", "ssh-node", "access-gateway")}
    assert {one["name"] for one in planned.all("identity", "aws_iam_role").values()} == names
    assert {one["name"] for one in planned.all("identity", "aws_iam_instance_profile").values()} == names


def test_a_machine_starts_when_its_role_has_all_of_its_rights() -> None:
    module = Path(__file__).parents[2] / "templates/terraform/modules/identity"
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(module.glob("*.tf")))
    rights = set(re.findall(r'^resource "aws_iam_role_policy" "(\w+)"', text, re.MULTILINE))
    waited_for = set(re.findall(r"^    aws_iam_role_policy\.(\w+),$", text, re.MULTILINE))
    assert rights == waited_for > set()


ROLES = {
    "node": {
        "ReadOwnSecrets", "FindOwnFileSystems", "ListBuckets", "ReadObjects", "ListUploads", "WriteObjects",
        "LookUp", "ReportDrained", "SignIn", "PullImages",
    },
    "control-plane": {
        "ReadOwnSecrets", "LookUp", "ScaleOwnGroups", "WriteOwnSecretsAndTokens", "ListSnapshots",
        "KeepSnapshots", "WriteAuditLog", "SignIn", "PullImages",
    },
    "ssh-node": {
        "ReadOwnSecrets", "FindOwnFileSystems", "ListBuckets", "ReadObjects", "ListUploads", "WriteObjects",
    },
    "access-gateway": {"ReadOwnSecrets"},
}  # fmt: skip
OPTIONAL = {
    "ListBuckets", "ReadObjects", "ListUploads", "WriteObjects", "ListSnapshots", "KeepSnapshots",
    "WriteAuditLog", "SignIn", "PullImages",
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_these_rights_and_no_others(planned: Planned, role: str) -> None:
    assert set(planned.policies("identity", role)) == ROLES[role]
    assert set(planned.policies("no_buckets", role)) == ROLES[role] - OPTIONAL


@pytest.mark.parametrize("role", ROLES)
def test_only_what_knows_no_resource_is_allowed_on_all(planned: Planned, role: str) -> None:
    for name, statement in planned.policies("identity", role).items():
        assert statement["Effect"] == "Allow"
        actions = listed(statement["Action"])
        assert not [action for action in actions if "*" in action], name
        if "*" in listed(statement["Resource"]):
            assert all(
                ":Describe" in action or action == "ecr:GetAuthorizationToken" for action in actions
            ), name
        else:
            assert all(resource.startswith("arn:aws:") for resource in listed(statement["Resource"])), name


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_its_own_secrets(planned: Planned, role: str) -> None:
    own = planned.policies("identity", role)["ReadOwnSecrets"]
    assert own["Resource"] == f"arn:aws:ssm:*:123456789012:parameter/causeway/lab/{role}/*"


@pytest.mark.parametrize("role", ROLES)
def test_a_region_that_the_cluster_is_not_in_is_out_of_reach(planned: Planned, role: str) -> None:
    """S3's names are global, and a token for a registry is nothing by itself."""
    for name, statement in planned.policies("identity", role).items():
        if all(
            action.startswith(("s3:", "ecr:GetAuthorizationToken")) for action in listed(statement["Action"])
        ):
            continue
        own = statement["Condition"]["StringEquals"]["aws:RequestedRegion"]
        assert sorted(own) == sorted(IDENTITY["regions"]), name


@pytest.mark.parametrize("role", ROLES)
def test_a_roles_policies_fit_into_iams_limit_in_thirty_regions(planned: Planned, role: str) -> None:
    """IAM counts the characters of all inline policies of a role, without white space."""
    policies = [
        policy["policy"]
        for policy in planned.all("everywhere", "aws_iam_role_policy").values()
        if policy["role"] == f"lab-{role}"
    ]
    size = sum(len("".join(policy.split())) for policy in policies)
    assert len(EVERYWHERE) == 30
    assert 0 < size <= MOST, f"{size} characters"


@pytest.mark.parametrize("module", ["identity", "everywhere", "no_buckets"])
def test_the_length_of_nodes_policies_is_as_checks_reckon_it(planned: Planned, module: str) -> None:
    size = sum(
        len("".join(policy["policy"].split()))
        for policy in planned.all(module, "aws_iam_role_policy").values()
        # No spec names repositories of images.
        if policy["role"] == "lab-node" and policy["name"] != "pull-images"
    )
    everywhere, none = module == "everywhere", module == "no_buckets"
    buckets = [] if none else [(each["bucket"], each["read_only"]) for each in IDENTITY["buckets"].values()]
    reckoned = of_nodes(
        EVERYWHERE if everywhere else IDENTITY["regions"], buckets, [KEY] if everywhere else []
    )
    assert abs(size - reckoned) <= 20


def test_groups_and_file_systems_of_another_cluster_are_out_of_reach(planned: Planned) -> None:
    for role, names in ROLES.items():
        policies = planned.policies("identity", role)
        for name in names & {"FindOwnFileSystems", "ReportDrained", "ScaleOwnGroups"}:
            assert policies[name]["Condition"]["StringEquals"]["aws:ResourceTag/cluster"] == "lab", (
                role,
                name,
            )
            assert not [action for action in listed(policies[name]["Action"]) if ":Client" in action]


def test_a_read_only_bucket_is_read_only(planned: Planned) -> None:
    for role in ("node", "ssh-node"):
        policies = planned.policies("identity", role)
        assert set(policies["ReadObjects"]["Resource"]) == {
            "arn:aws:s3:::lab-data/*",
            "arn:aws:s3:::lab-models/*",
        }
        assert listed(policies["WriteObjects"]["Resource"]) == ["arn:aws:s3:::lab-models/*"]
        writing = {"s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"}
        allowed = {
            action
            for statement in policies.values()
            for action in listed(statement["Action"])
            if "lab-data" in json.dumps(statement["Resource"])
        }
        assert not allowed & writing
        assert "s3:DeleteObjectVersion" not in json.dumps(policies)


def test_keys_are_used_through_s3_alone(planned: Planned) -> None:
    for role in ROLES:
        name = "UseKeysOfBuckets"
        assert name not in planned.policies("identity", role)
        if role == "access-gateway":
            assert name not in planned.policies("everywhere", role)
            continue
        statement = planned.policies("everywhere", role)[name]
        assert statement["Resource"] == KEY
        services = statement["Condition"]["StringEquals"]["kms:ViaService"]
        assert set(services) == {f"s3.{region}.amazonaws.com" for region in EVERYWHERE}


def test_masters_keep_snapshots_and_delete_none(planned: Planned) -> None:
    policies = planned.policies("identity", "control-plane")
    assert listed(policies["KeepSnapshots"]["Resource"]) == ["arn:aws:s3:::lab-snapshots/snapshots/*"]
    assert "Delete" not in json.dumps(policies["KeepSnapshots"])


def test_masters_write_the_audit_log_and_nothing_else_there(planned: Planned) -> None:
    """As IAM decides, whatever else masters may do."""
    statements = list(planned.policies("identity", "control-plane").values())
    allowed = read("control-plane", json.dumps({"Statement": statements}))

    def may(action: str, resource: str) -> bool:
        return bool(allowing(allowed, Request(f"s3:{action}", f"arn:aws:s3:::{resource}")))

    key = "lab-audit/audit/lab/master-1/2026/11/25/042300-0123456789abcdef-000000000000.log.gz"
    assert may("PutObject", key)
    assert not may("PutObject", "lab-audit/other/x")
    assert not may("PutObject", "lab-other/audit/x")
    for action in (
        "GetObject",
        "GetObjectVersion",
        "DeleteObject",
        "DeleteObjectVersion",
        "PutObjectRetention",
    ):
        assert not may(action, key), action
    for action in ("ListBucket", "PutLifecycleConfiguration", "PutBucketVersioning", "DeleteBucketPolicy"):
        assert not may(action, "lab-audit"), action


# -- dns --------------------------------------------------------------------------------------------------


def test_private_zone_is_seen_by_every_vpc(planned: Planned) -> None:
    (zone,) = planned.all("no_public", "aws_route53_zone").values()
    assert zone["vpc"] == [{"vpc_id": "vpc-1", "vpc_region": "us-west-2"}]
    (other,) = planned.all("dns", "aws_route53_zone_association").values()
    assert (other["vpc_id"], other["vpc_region"]) == ("vpc-2", "us-east-1")


def test_records(planned: Planned) -> None:
    records = planned.all("dns", "aws_route53_record")
    assert (records['private["node-1"]']["records"], records['private["node-1"]']["ttl"]) == (
        ["10.9.0.4"],
        60,
    )
    assert records['private["zero"]']["ttl"] == 0
    escaped = LONG.replace('"', '\\"')
    first, second = LONG[:255].replace('"', '\\"'), LONG[255:].replace('"', '\\"')
    assert set(records['private["note"]']["records"]) == {"short", f'{first}""{second}'}
    assert f"{first}{second}" == escaped
    alias = records['alias["api"]']
    assert (alias["alias"][0]["name"], alias["alias"][0]["zone_id"]) == ("lb.example.org", "Z1")
    assert records['public["vpn"]']["name"] == "vpn.example.org"


def test_public_zone_is_made_or_adopted_or_left_out(planned: Planned, terraform: Root) -> None:
    assert set(planned.all("dns", "aws_route53_zone")) == {"private", 'public["example.org"]'}
    for module in ("adopted", "no_public"):
        assert set(planned.all(module, "aws_route53_zone")) == {"private"}
    after = {name: planned.outputs[name]["after"] for name in ("adopted", "no_public")}
    assert after["adopted"]["public_zone_id"] == terraform.environment["TF_VAR_existing_zone"]
    assert len(after["adopted"]["public_name_servers"]) == 4
    assert (after["no_public"]["public_zone_id"], after["no_public"]["public_name_servers"]) == (None, [])


def test_each_policy_of_a_role_is_among_those_that_it_may_have() -> None:
    """One that is not would be taken away by the apply that gives it."""
    folder = MODULES / "identity"
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.tf")))
    given = set(re.findall(r'^resource "aws_iam_role_policy" "(\w+)"', text, re.MULTILINE))
    (listed,) = re.findall(r"^  policies = concat\((.*?)^  \)", text, re.MULTILINE | re.DOTALL)
    assert given == set(re.findall(r"aws_iam_role_policy\.(\w+)", listed))
