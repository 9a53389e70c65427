"""One environment from its first apply to nothing: changed by hand and by edits, with instances at work.

Real Terraform on an embedded AWS of two regions, driven as a person does. The steps build on each other, and
each apply has several things to do: three of them and a destroy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from drive.behind_terraforms_back import CHANGES, World
from invoking import Project, on_embedded_aws
from localaws.control import Control
from permissions.recorded import PLAN, recording
from settings import forget_settings

from infra.commands import session
from infra.commands.environment import find, load_project
from infra.drive import lifecycle, localaws, saved_plan, summary
from infra.drive.aws import Aws
from infra.drive.lifecycle import Job
from infra.drive.localaws import Server
from infra.drive.refresh import settle
from infra.drive.undeclared.model import declared

pytestmark = pytest.mark.timeout(3600)

PEERED = """\
version: 1
name: lab
domain: lab.internal
aws: {embedded: true}
supernet: 10.64.0.0/10
network: {interconnect: peering, alarms: {emails: [on-call@lab.example]}}
kubernetes: {control_plane: {count: 1}}
sites:
  rack:
    kind: physical
    cidr: 10.120.0.0/22
    gateway: {addresses: [198.51.100.30], node: edge}
    nodes: {edge: {address: 10.120.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}}
  hall:
    kind: physical
    cidr: 192.168.64.0/22
    gateway: {addresses: [198.51.100.40], node: edge-hall, routing: static}
    nodes: {edge-hall: {address: 192.168.64.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}}
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a, us-west-2b], kms_key: KEY, flow_logs: {}}
  us-east-1: {kind: aws, zones: [use1-az6]}
images: {cpu: {ubuntu: 24.04}}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
  work: {image: cpu, instance_types: [m6i.large], regions: {us-west-2: {max: 4}, us-east-1: {max: 4}}}
  tight:
    image: cpu
    instance_types: [m6i.large]
    placement_group: cluster
    regions: {us-west-2: {max: 4, zones: [us-west-2a]}}
  old: {image: cpu, instance_types: [m5.large], launch: configuration, regions: {us-east-1: {max: 1}}}
storage:
  efs: {home: {path: /home}}
  s3: {datasets: {path: /data}}
access:
  vpn: {servers: []}
  ssh_nodes:
    login: {instance_type: t3.medium, image: cpu, public: true, ssh_from: [203.0.113.0/24]}
"""
"""What is changed below, and what no shipped spec has: a key, static routes, a launch configuration, a zone
by its id."""
TRANSIT = PEERED.replace("interconnect: peering", "interconnect: transit-gateway")
RENAMED = TRANSIT.replace("  work: {", "  batch: {")
EDITED = (
    RENAMED.replace("  batch: {", "  batch: {renamed_from: work, ")
    .replace(", us-east-1: {max: 4}}}", "}}")
    .replace("placement_group: cluster", "placement_group: spread")
    .replace("[us-west-2a, us-west-2b]", "[us-west-2a]")
)
OURS = [{"Name": "tag:environment", "Values": ["lab"]}]
LEFT = {
    **dict.fromkeys(("kms.keys", "iam.managed_policies", "ec2.vpn_gateways"), 1),
    **dict.fromkeys(("ec2.vpcs", "ec2.groups", "ec2.network_acls", "ec2.route_tables"), 1),
}
"""What stays after the destroy: the key, and what was made by hand."""
WORK = "lab-us-west-2-work"
EAST_WORK = "lab-us-east-1-work"
TIGHT = "lab-us-west-2-tight"
GROUP = "aws_autoscaling_group.this"
WEST = f'module.us_west_2.module.node_pool["work"].{GROUP}'
EAST = f'module.us_east_1.module.node_pool["work"].{GROUP}'
LOAD_BALANCER = 'module.us_west_2.module.control_plane["this"].aws_lb.this'
PLACEMENT = 'module.us_west_2.module.node_pool["tight"].aws_placement_group.this["cluster"]'
GATEWAYS = [
    f'module.{region}.module.vpn_gateway["this"].aws_vpn_gateway.this'
    for region in ("us_east_1", "us_west_2")
]


def named(*addresses: str) -> tuple[str, ...]:
    return tuple(word for address in addresses for word in ("--destroy", address))


@dataclass(frozen=True)
class Lab:
    project: Project
    server: Server
    aws: Aws
    key: str
    """A customer-managed key."""
    update: bool

    def invoke(self, *words: str, code: int = 0) -> tuple[str, str]:
        return self.project.invoke(*words, code=code)

    def plan(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.invoke("plan", "--json", *words)[0])
        return found

    def spec(self, text: str) -> None:
        self.project.write(text.replace("KEY", self.key))

    def recording(self, scenario: str, **options: Any) -> Any:
        return recording(self.server, scenario, update=self.update, **options)

    def outputs(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.invoke("outputs", "--json")[0])
        return found

    def group(self, region: str, name: str) -> dict[str, Any]:
        [group] = self.aws.client("autoscaling", region).describe_auto_scaling_groups(
            AutoScalingGroupNames=[name]
        )["AutoScalingGroups"]
        found: dict[str, Any] = group
        return found

    def instances(self, region: str, name: str) -> set[str]:
        return {each["InstanceId"] for each in self.group(region, name)["Instances"]}

    def grow(self, region: str, name: str, count: int, zone: str = "") -> set[str]:
        """To so many instances; the new ones in this zone."""
        client = self.aws.client("autoscaling", region)
        all_of_it, before = self.group(region, name)["VPCZoneIdentifier"], self.instances(region, name)
        subnets = self.aws.client("ec2", region).describe_subnets(SubnetIds=all_of_it.split(","))["Subnets"]
        [only] = [each["SubnetId"] for each in subnets if each["AvailabilityZone"] == zone] or [all_of_it]
        client.update_auto_scaling_group(
            AutoScalingGroupName=name, MaxSize=4, DesiredCapacity=count, VPCZoneIdentifier=only
        )
        client.update_auto_scaling_group(AutoScalingGroupName=name, VPCZoneIdentifier=all_of_it)
        return self.instances(region, name) - before


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Lab]:
    forget_settings(monkeypatch)
    monkeypatch.chdir(tmp_path)
    with on_embedded_aws(tmp_path, "lab", PEERED) as (project, server):
        aws = Aws(localaws.environment(server, "us-west-2"))
        key = aws.client("kms", "us-west-2").create_key()["KeyMetadata"]["Arn"]
        made = Lab(project, server, aws, key, request.config.getoption("--update-golden"))
        made.spec(PEERED)
        yield made


def test_from_the_first_apply_to_nothing(lab: Lab) -> None:
    """The shipped policies allow each call."""
    with lab.recording("lab"):
        lab.invoke("apply", "--yes")
    outputs = lab.outputs()
    assert outputs["networks"]["us-east-1"]["zones"] == {"use1-az6": "us-east-1a"}
    before = outputs["vpn_connections"]
    assert set(before) == {"rack-us-west-2", "rack-us-east-1", "hall-us-west-2", "hall-us-east-1"}
    each_change_by_hand_is_found(lab)
    connections_move_to_the_transit_gateway(lab, before)
    instances_at_work_outlive_edits_of_their_pool(lab)
    lab.invoke("destroy", "--confirm", "lab")
    left = localaws.inventory(lab.server).values()
    assert {kind: len(names) for kinds in left for kind, names in kinds.items()} == LEFT
    for region in ("us-west-2", "us-east-1"):
        assert lab.aws.client("ec2", region).describe_vpcs(Filters=OURS)["Vpcs"] == []


def each_change_by_hand_is_found(lab: Lab) -> None:
    """Each is named by who may only look; none of them is taken for what an apply has left."""
    job: Job = session.job(load_project(find("lab")))
    seen = World(job.aws(), declared(job.terraform().pull(), job.sites, job.regions))
    for change, _ in CHANGES.values():
        change(seen)

    state = saved_plan.local_state(job.folders)
    assert state is not None
    before = state.read_bytes()
    with lab.recording("lab-plan", policies=PLAN):
        found = lifecycle.drift(job)
    assert found.exit_code == 2
    assert state.read_bytes() == before
    rows = summary.drift_json(found.changes, found.undeclared)
    said = [
        (
            row["address"],
            f"{row['type']} {row['reason']}" if row["action"] == "undeclared" else row["action"],
            [attribute["path"] for attribute in row["attributes"]],
        )
        for row in rows
    ]
    missing = [
        name
        for name, (_, (address, what)) in CHANGES.items()
        if not any(
            address in where
            and (
                action == "delete"
                if what == "gone"
                else what in action or any(path.startswith(what) for path in paths)
            )
            for where, action, paths in said
        )
    ]
    assert missing == []
    text = summary.drift_text(found.changes, found.undeclared, environment="lab", options="--env lab")
    assert all(address in text for _, (address, _) in CHANGES.values())

    # A door that an apply before this one would have written into the state as it is stays found.
    settle(job.terraform(), job.folders.state / "settle.tfplan", pauses=())
    again = lifecycle.drift(job)
    assert {one.id for one in again.undeclared} == {one.id for one in found.undeclared}
    assert "max_size" in {each.path for one in again.changes for each in one.attributes}


def connections_move_to_the_transit_gateway(lab: Lab, before: dict[str, Any]) -> None:
    """What the plan names, in which order, all routes; the same apply restores what was changed by hand."""
    lab.spec(TRANSIT)
    refused = lab.invoke("plan", code=1)[1]
    assert [gateway for gateway in GATEWAYS if gateway not in refused] == []
    plan = lab.plan(*named(*GATEWAYS))
    assert sorted(plan["protected"]) == GATEWAYS
    moves = {
        change["address"].rpartition("aws_vpn_connection.")[2]: change["action"]
        for change in plan["changes"]
        if change["type"] == "aws_vpn_connection"
    }
    assert moves == {
        'this["rack-us-west-2"]': "update",
        'this["rack-us-east-1"]': "delete",
        'this["hall-us-west-2"]': "delete",
        'this["hall-us-west-2 static"]': "create",
        'this["hall-us-east-1"]': "delete",
    }
    with lab.recording("lab-transit"):
        lab.invoke("apply", *named(*GATEWAYS))
        made = [call.action for call in Control(lab.server).calls() if call.region == "us-west-2"]
    # AWS keeps no gateway that has no connections, and no connection without its gateway.
    assert made.index("ModifyVpnConnection") < made.index("DeleteVpnGateway")
    after = lab.outputs()["vpn_connections"]
    assert set(after) == {"rack-us-west-2", "hall-us-west-2"}
    assert after["rack-us-west-2"] == before["rack-us-west-2"]

    west, east = (lab.aws.client("ec2", region) for region in ("us-west-2", "us-east-1"))
    [table] = west.describe_transit_gateway_route_tables()["TransitGatewayRouteTables"]
    learning = west.get_transit_gateway_route_table_propagations(
        TransitGatewayRouteTableId=table["TransitGatewayRouteTableId"]
    )["TransitGatewayRouteTablePropagations"]
    assert sorted(row["ResourceType"] for row in learning) == ["vpc", "vpn", "vpn"]
    [west_vpc], [east_vpc] = (
        [vpc["CidrBlock"] for vpc in client.describe_vpcs(Filters=OURS)["Vpcs"]] for client in (west, east)
    )
    # What BGP tells is not stated; behind a peering everything is.
    lans = {"10.120.0.0/22", "192.168.64.0/22"}
    assert transit_routes(lab.aws, "us-west-2") == {east_vpc: "peering", "192.168.64.0/22": "vpn"}
    assert transit_routes(lab.aws, "us-east-1") == dict.fromkeys({west_vpc, *lans}, "peering")
    assert vpc_routes(lab.aws, "us-west-2") == {east_vpc, *lans}
    assert vpc_routes(lab.aws, "us-east-1") == {west_vpc, *lans}
    done = lab.plan("--detailed-exitcode")
    assert (done["changes"], done["undeclared"]) == ([], [])


def transit_routes(aws: Aws, region: str) -> dict[str, str]:
    """Of the region's transit gateway: block → what the route leads to."""
    client = aws.client("ec2", region)
    [table] = client.describe_transit_gateway_route_tables()["TransitGatewayRouteTables"]
    found = client.search_transit_gateway_routes(
        TransitGatewayRouteTableId=table["TransitGatewayRouteTableId"],
        Filters=[{"Name": "type", "Values": ["static"]}],
    )["Routes"]
    return {
        route["DestinationCidrBlock"]: route["TransitGatewayAttachments"][0]["ResourceType"]
        for route in found
    }


def vpc_routes(aws: Aws, region: str) -> set[str]:
    """Blocks that all subnets of the region's VPC send to its transit gateway."""
    tables = aws.client("ec2", region).describe_route_tables()["RouteTables"]
    return set.intersection(
        *(
            {row["DestinationCidrBlock"] for row in table["Routes"] if "TransitGatewayId" in row}
            for table in tables
            if any("SubnetId" in row for row in table["Associations"])
        )
    )


def instances_at_work_outlive_edits_of_their_pool(lab: Lab) -> None:
    """Renamed, taken out of a region and a zone, moved to another placement group."""
    west = lab.grow("us-west-2", WORK, 3, "us-west-2a")
    (east,) = lab.grow("us-east-1", EAST_WORK, 1)
    (tight,) = lab.grow("us-west-2", TIGHT, 1, "us-west-2a")
    (far,) = lab.grow("us-west-2", WORK, 4, "us-west-2b")
    assert len(west) == 3

    # Renamed without a word: the groups and what is in them are named, and stay.
    lab.spec(RENAMED)
    with lab.recording("lab-plan", policies=PLAN):
        planned = lab.plan("--only", "us-west-2")
    assert {one["site"] for one in planned["changes"]} == {"us-west-2"}
    assert planned["protected"] == [WEST]
    losses = {one["address"]: one["loss"] for one in planned["changes"]}
    assert all(each in losses[WEST] for each in {far, *west})
    assert "renamed_from: work" in losses[WEST]
    assert "invoke pool.drain --env lab --pool work" in losses[WEST]
    assert "no cluster" in losses[WEST]  # which could say what works on them
    _, said = lab.invoke("apply", code=1)
    assert f"--destroy '{WEST}'" in said
    assert lab.instances("us-west-2", WORK) == {far, *west}

    # Renamed as it should be. Taken out of one region and a zone, another placement group for another pool.
    lab.spec(EDITED)
    _, said = lab.invoke("plan", code=1)  # it can't leave a zone
    assert f"--destroy '{LOAD_BALANCER}'" in said
    agreed = named(LOAD_BALANCER)
    planned = lab.plan(*agreed)
    [subnet] = set(planned["protected"]) - {EAST, PLACEMENT, LOAD_BALANCER}
    losses = {one["address"]: one["loss"] for one in planned["changes"]}
    assert "aws_subnet" in subnet
    assert east in losses[EAST]
    assert far in losses[subnet]
    assert not any(each in losses[subnet] for each in west)
    zone = ("--pool", "work", "--site", "us-west-2", "--zone", "us-west-2b")
    assert f"invoke pool.drain --env lab {' '.join(zone)}" in losses[subnet]
    moved = {one["previous_address"]: one["action"] for one in planned["changes"] if one["previous_address"]}
    assert moved[WEST] == "update"
    assert "replace" not in moved.values()
    _, said = lab.invoke("apply", *named(EAST, PLACEMENT, LOAD_BALANCER, subnet), code=1)
    assert tight in said
    assert far in said
    assert "invoke pool.drain --env lab --pool tight" in said

    # A drain works for what the spec has no more.
    said, _ = lab.invoke("pool.drain", "--pool", "work", "--zone", "us-east-1a", "--yes")
    assert "us-east-1" in said
    assert not lab.instances("us-east-1", EAST_WORK)
    by_id = "usw2-az1"  # us-west-2b, whose subnet leaves the group before its instances do
    lab.invoke("pool.drain", *zone[:-1], by_id, "--yes")
    assert lab.instances("us-west-2", WORK) == west
    _, said = lab.invoke("pool.drain", "--pool", "work", "--zone", "eu-west-1a", "--yes", code=1)
    assert "us-west-2a" in said
    lab.invoke("pool.drain", "--pool", "tight", code=1)  # nobody agreed
    assert lab.instances("us-west-2", TIGHT) == {tight}
    lab.invoke("pool.drain", "--pool", "tight", "--yes")
    assert not lab.instances("us-west-2", TIGHT)
    _, said = lab.invoke("pool.drain", "--pool", "wrok", "--yes", code=1)
    assert "batch" in said

    # What starts between plan and apply is seen.
    assert set(lab.plan(*agreed)["protected"]) <= {LOAD_BALANCER}
    (late,) = lab.grow("us-east-1", EAST_WORK, 1)
    _, said = lab.invoke("apply", *agreed, code=1)
    assert late in said
    lab.invoke("pool.drain", "--pool", "work", "--site", "us-east-1", "--yes")
    with lab.recording("lab-edited"):
        lab.invoke("apply", *agreed)
    assert lab.instances("us-west-2", WORK) == west
    tags = lab.group("us-west-2", WORK)["Tags"]
    assert {"batch"} == {tag["Value"] for tag in tags if tag["Key"] == "pool"}

    # The word may go: the lock file has the name.
    lab.spec(EDITED.replace("renamed_from: work, ", ""))
    assert lab.plan()["changes"] == []
