"""Calls of the Terraform modules: good ones, and ones that Terraform refuses."""

from __future__ import annotations

from typing import Any

from infra.catalogue import regions

Call = dict[str, Any]

TAGS = {"cluster": "lab", "environment": "test", "managed-by": "causeway"}
ZONES = ("us-west-2a", "us-west-2b")
INSIDE = ["10.0.0.0/8", "100.64.0.0/16"]
KEY = "arn:aws:kms:us-west-2:123456789012:key/mrk-0123456789abcdef0123456789abcdef"
RESERVATION = "cr-0123456789abcdef0"
LONG = 'he said "' + "x" * 300 + '"'
EVERYWHERE = [name for name in regions.names() if not name.startswith(("cn-", "us-gov-"))][:30]
"""As many regions as an account of the partition ``aws`` may well be in."""

NETWORK: Call = {
    "source": "./modules/network",
    "name": "lab-us-west-2",
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
VPN_GATEWAY: Call = {
    "source": "./modules/vpn_gateway",
    "name": "lab-vpn",
    "vpc_id": "vpc-1",
    "asn": 64512,
    "route_tables": {"private-us-west-2a": "rtb-a", "private-us-west-2b": "rtb-b"},
}
VPN: Call = {
    "source": "./modules/vpn_connections",
    "name": "lab-vpn",
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
    "alarms": {"emails": ["on-call@lab.example", "ada@lab.example"]},
}
STORAGE: Call = {
    "source": "./modules/storage",
    "name": "lab-us-west-2",
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
IDENTITY: Call = {
    "source": "./modules/identity",
    "name": "lab",
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
DNS: Call = {
    "source": "./modules/dns",
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
ADOPTED = {"id": "${var.existing_zone}"}
PEERING: Call = {
    "source": "./modules/peering",
    "name": "lab-west-east",
    "requester": {"vpc_id": "vpc-1", "block": "10.1.0.0/16", "route_tables": {"a": "rtb-1", "b": "rtb-2"}},
    "accepter": {"vpc_id": "vpc-2", "block": "10.2.0.0/16", "route_tables": {"c": "rtb-3"}},
}
LANS = ["10.8.0.0/22", "192.168.64.0/22"]
TRANSIT: Call = {
    "source": "./modules/transit_gateway",
    "name": "lab-west",
    "asn": 64520,
    "vpc_id": "vpc-1",
    "subnets": {"private-us-west-2a": "subnet-a", "private-us-west-2b": "subnet-b"},
    "route_tables": {"public": "rtb-a", "private-us-west-2a": "rtb-b"},
    "lans": LANS,
}
TRANSIT_PEERING: Call = {
    "source": "./modules/transit_peering",
    "name": "lab-west-east",
    "requester": {
        "transit_gateway_id": "tgw-1", "transit_route_table": "tgw-rtb-1", "block": "10.1.0.0/16",
        "route_tables": {"a": "rtb-1"},
    },
    "accepter": {
        "transit_gateway_id": "tgw-2", "transit_route_table": "tgw-rtb-2", "block": "10.2.0.0/16",
        "lans": LANS, "route_tables": {"b": "rtb-2"},
    },
}  # fmt: skip
DATABASE: Call = {
    "source": "./modules/tracking_database",
    "name": "lab-mlflow",
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

# -- Machines ---------------------------------------------------------------------------------------------

USER_DATA = '#cloud-config\nwrite_files: [{path: /etc/é, content: "$${HOME} %%{if}"}]\n'
FACTS: Call = {"site": "us-west-2", "motto": "é $${HOME} %%{if}", "labels": {}, "taints": []}


def pool(*, kms_key: str | None = None, **fields: Any) -> Call:
    """A call of the module for node pools."""
    return {
        "source": "./modules/node_pool",
        "subnet_ids": {"a": "subnet-a", "b": "subnet-b", "c": "subnet-c"},
        "image_ids": {"cpu": "ami-0123456789abcdef0", "gpu": "ami-0123456789abcdef1"},
        "security_group_ids": ["sg-node"],
        "instance_profile": "lab-node",
        "kms_key": kms_key,
        "pool": {
            "name": "lab-pool",
            "image": "cpu",
            "subnets": ["a", "b"],
            "instance_types": [{"name": "m6i.large"}],
            "max": 10,
            "root_disk": {
                "device": "/dev/sda1", "size_gib": 60, "type": "gp3", "iops": None, "throughput": None,
            },
            "user_data": FACTS,
        }
        | fields,
    }  # fmt: skip


_SCRATCH = {"device": "/dev/sdf", "size_gib": 500, "iops": 6000, "throughput": 500}
_POOLS: dict[str, Call] = {
    "plain": {
        "min": 2,
        "scratch_disks": [_SCRATCH],
        "max_lifetime_seconds": 604800,
        "drain_timeout_seconds": 30,
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
        "drain_timeout_seconds": 7200,
    },
    "spot": {
        "instance_types": [{"name": "p3.2xlarge"}],
        "capacity_rebalance": True,
        "market": {"kind": "spot", "max_price": "1.25"},
        "placement_group": "spread",
    },
    "p4d": {
        "subnets": ["a"],
        "instance_types": [{"name": "p4d.24xlarge"}],
        "efa_interfaces": 4,
        "placement_group": "cluster",
        "capacity_reservation": {"preference": "none"},
    },
    "p5": {
        "instance_types": [{"name": "p5.48xlarge"}],
        "efa_interfaces": 32,
        "capacity_reservation": {"preference": "open", "id": RESERVATION},
    },
    "block": {
        "subnets": ["a"],
        "instance_types": [{"name": "p5.48xlarge"}],
        "market": {"kind": "capacity-block"},
        "capacity_reservation": {"id": RESERVATION},
    },
    "reserved": {"capacity_reservation": {"preference": "capacity-reservations-only"}},
    "warm": {"warm_pool": {"state": "Hibernated", "min": 1, "max_prepared": 4, "reuse": False}},
    "old": {
        "launch": "configuration",
        "instance_types": [{"name": "p2.xlarge"}],
        "placement_group": "partition",
        "scratch_disks": [{"device": "/dev/sdf", "size_gib": 100}],
    },
    "old_spot": {
        "launch": "configuration",
        "market": {"kind": "spot", "max_price": "0.5"},
        "capacity_rebalance": True,
    },
}
_MACHINE: Call = {
    "instance_type": "m6i.large",
    "image_id": "ami-0123456789abcdef0",
    "root_disk": {"size_gib": 100},
    "user_data": USER_DATA,
}
CONTROL_PLANE: Call = {
    "source": "./modules/control_plane",
    "name": "lab-us-west-2",
    "vpc_id": "vpc-1",
    "load_balancer": "lab-us-west-2-api",
    "load_balancer_subnet_ids": {"us-west-2a": "subnet-a", "us-west-2b": "subnet-b"},
    "load_balancer_security_group_ids": ["sg-balancer"],
    "security_group_ids": ["sg-masters", "sg-ssh"],
    "instance_profile": "lab-control-plane",
    "kms_key": KEY,
    "masters": {
        f"master_{index}": {
            **_MACHINE,
            "name": f"lab-us-west-2-master-{index}",
            "subnet_id": "subnet-a",
            "tags": {"role": "control-plane"},
        }
        for index in (1, 2, 3)
    },
}
_OPEN = {"role": "ssh-node", "subnet_id": "subnet-public", "public": True}
ACCESS: Call = {
    "source": "./modules/access",
    "name": "lab-us-west-2",
    "vpc_id": "vpc-1",
    "security_groups": {"ssh": "sg-ssh", "vpn": "sg-vpn"},
    "instance_profiles": {"ssh-node": "lab-ssh-node", "access-gateway": "lab-access-gateway"},
    "instances": {
        "open": {
            **_MACHINE, **_OPEN, "name": "lab-open", "ssh_from": ["198.51.100.0/24", "203.0.113.7/32"],
        },
        "inner": {**_MACHINE, "name": "lab-inner", "role": "ssh-node", "subnet_id": "subnet-a"},
        "gateway": {**_MACHINE, **_OPEN, "name": "lab-gateway", "role": "access-gateway"},
    },
}  # fmt: skip

# -- What is called ---------------------------------------------------------------------------------------

_JOINED = {"id": "${module.transit_gateway.id}", "route_table": "${module.transit_gateway.route_table}"}
_WEST, _EAST = {"aws": "aws.west"}, {"aws": "aws.east"}
_BOTH = {"aws.requester": "aws.west", "aws.accepter": "aws.east"}
_NONE = dict.fromkeys(("snapshots", "audit_log", "image_repositories"))

CALLS: dict[str, Call] = {
    name: {"tags": TAGS, "providers": _WEST} | call
    for name, call in {
        "network": NETWORK,
        "closed": NETWORK | {"providers": _EAST, "vpn_ports": {}, "nat": {}, "flow_logs": None},
        "vpn_gateway": VPN_GATEWAY,
        "vpn": VPN,
        "vpn_transit": VPN | {"vpn_gateway_id": None, "transit_gateway": _JOINED},
        "without_alarms": VPN | {"alarms": None},
        "storage": STORAGE,
        "encrypted": STORAGE | {"kms_key": KEY},
        "identity": IDENTITY,
        "no_buckets": IDENTITY | _NONE | {"buckets": {}},
        "everywhere": IDENTITY | {"regions": EVERYWHERE, "volumes_region": "us-west-2", "kms_keys": [KEY]},
        "dns": DNS,
        "adopted": DNS | {"public": ADOPTED | {"zone": "adopted.example"}, "public_records": {}},
        "no_public": DNS | {"public": None, "public_records": {}},
        "peering": PEERING | {"providers": _BOTH},
        "transit_gateway": TRANSIT,
        "transit_peering": TRANSIT_PEERING | {"providers": _BOTH},
        "database": DATABASE,
        **{name: pool(**{"name": f"lab-{name}"} | fields) for name, fields in _POOLS.items()},
        "control_plane": CONTROL_PLANE,
        "access": ACCESS,
    }.items()
}


def _connection(**changes: Any) -> Call:
    return {"connections": {"one": VPN["connections"]["by-bgp"] | changes}}


def _tunnels(first: str, second: str) -> Call:
    return _connection(tunnels=[{"inside": first, "key": "a/1"}, {"inside": second, "key": "a/2"}])


def _file_system(**changes: Any) -> Call:
    return {"file_systems": {"one": {"name": "one", "subnet_ids": {}} | changes}}


def _bucket(**changes: Any) -> Call:
    return {"buckets": {"one": {"bucket": "lab-one"} | changes}}


_PODS = {"tier": "pods", "zone": "z", "block": "10.1.0.0/20"}
_CNAME = {"name": "x.lab.internal", "type": "CNAME", "values": ["a", "b"]}

INVALID: dict[str, Call] = {
    name: {"tags": TAGS} | call | changes
    for name, call, changes in (
        ("vpc-too-large", NETWORK, {"block": "10.0.0.0/8"}),
        ("vpc-host-bits", NETWORK, {"block": "10.1.2.0/16"}),
        ("two-of-a-tier", NETWORK, {"subnets": {"a": _PODS, "b": _PODS}}),
        ("inside-everything", NETWORK, {"inside": ["0.0.0.0/0"]}),
        ("ssh-for-all", NETWORK, {"vpn_ports": {"ssh": {"protocol": "tcp", "port": 22}}}),
        ("public-asn", VPN_GATEWAY, {"asn": 15169}),
        ("bad-key", VPN, {"tunnel_keys": {"a/1": "01234567", "a/2": "12345678"}}),
        ("not-link-local", VPN, _tunnels("10.0.0.0/30", "169.254.9.0/30")),
        ("amazons-own", VPN, _tunnels("169.254.169.252/30", "169.254.9.0/30")),
        ("amazons-first", VPN, _tunnels("169.254.5.0/30", "169.254.9.0/30")),
        ("inside-twice", VPN, _tunnels("169.254.9.0/30", "169.254.9.0/30")),
        ("rekey-too-late", VPN, {"proposals": {"phase2_lifetime": 900}}),
        ("max-io-elastic", STORAGE, _file_system(performance="maxIO")),
        ("name-too-long", STORAGE, _file_system(name="x" * 257)),
        ("archive-when", STORAGE, _file_system(archive_after_days=31)),
        ("access-point", STORAGE, _file_system(access_points={"x": {"path": "x", "uid": 0, "gid": 0}})),
        ("bucket-name", STORAGE, _bucket(bucket="Lab")),
        ("expires-first", STORAGE, _bucket(archive_days=90, expire={"": 30})),
        ("role-name", IDENTITY, {"name": "x" * 50}),
        ("open-prefix", IDENTITY, {"secrets_prefix": "/causeway/*"}),
        ("one-zone", DATABASE, {"subnet_ids": ["subnet-a"]}),
        ("class-of-ec2", DATABASE, {"instance_class": "t4g.small"}),
        ("no-backups", DATABASE, {"backup_days": 0}),
        ("two-cnames", DNS, {"records": {"x": _CNAME}}),
    )
}
"""Calls with a value that no call may have: refused by ``terraform validate``."""

UNFIT: dict[str, Call] = {
    name: {"tags": TAGS} | call | changes
    for name, call, changes in (
        ("nat-in-no-zone", NETWORK, {"nat": {"us-west-2a": "us-west-2c"}}),
        ("no-such-gateway", VPN, _connection(customer_gateway="rack-z")),
        ("no-such-key", VPN, {"tunnel_keys": {"a/1": "one.pre_shared.key"}}),
        ("efs-without-group", STORAGE, {"security_group_ids": []}),
        ("no-public-zone", DNS, {"public": None}),
        ("another-zone", DNS, {"public": ADOPTED | {"zone": "example.net"}, "public_records": {}}),
        ("too-few", pool(min=11), {}),
        ("cluster-of-zones", pool(placement_group="cluster"), {}),
        (
            "reserved-spot",
            pool(capacity_reservation={"id": RESERVATION}, market={"kind": "spot"}),
            {},
        ),
        ("block-without", pool(market={"kind": "capacity-block"}), {}),
        ("warm-spot", pool(warm_pool={}, market={"kind": "spot"}), {}),
        (
            "old-several",
            pool(launch="configuration", instance_types=[{"name": "m5.large"}, {"name": "m6i.large"}]),
            {},
        ),
        ("old-mixed", pool(launch="configuration", market={"kind": "mixed"}), {}),
        ("old-spot", pool(launch="configuration", market={"kind": "spot"}), {}),
        ("old-efa", pool(launch="configuration", efa_interfaces=1), {}),
    )
}
"""Calls whose values are each good, but not together: refused by the plan."""
