"""VPN connections move from virtual private gateways to a transit gateway, and go.

Real Terraform on an embedded AWS of two regions, driven as a person does: two applies, four plans and a
destroy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from invoking import Project, on_embedded_aws
from localaws.control import Control
from permissions.recorded import recording
from settings import forget_settings

from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.localaws import Server

pytestmark = pytest.mark.timeout(900)

PEERED = """\
version: 1
name: lab
domain: lab.internal
aws: {embedded: true}
supernet: 10.64.0.0/10
network: {interconnect: peering}
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
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a], nat: none, endpoints: []}
  us-east-1: {kind: aws, zones: [us-east-1a], nat: none, endpoints: []}
access: {vpn: {servers: []}}
"""
TRANSIT = PEERED.replace("interconnect: peering", "interconnect: transit-gateway")
GATEWAYS = [
    f'module.{region}.module.vpn_gateway["this"].aws_vpn_gateway.this'
    for region in ("us_east_1", "us_west_2")
]
NAMED = [word for gateway in GATEWAYS for word in ("--destroy", gateway)]


def connections(project: Project) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(project.invoke("outputs", "--json")[0])["vpn_connections"]
    return rows


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


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Project, Server]]:
    forget_settings(monkeypatch)
    with on_embedded_aws(tmp_path, "lab", PEERED) as lab:
        yield lab


def test_connections_move_to_the_transit_gateway(
    lab: tuple[Project, Server], request: pytest.FixtureRequest
) -> None:
    project, server = lab
    project.invoke("apply", "--yes")
    before = connections(project)
    assert set(before) == {"rack-us-west-2", "rack-us-east-1", "hall-us-west-2", "hall-us-east-1"}

    project.write(TRANSIT)
    refused = project.invoke("plan", code=1)[1]
    assert [gateway for gateway in GATEWAYS if gateway not in refused] == []
    plan = json.loads(project.invoke("plan", "--json", *NAMED)[0])
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

    update = request.config.getoption("--update-golden")
    with recording(server, "transit-vpn", update=update):
        project.invoke("apply", "--yes", *NAMED)
        made = [call.action for call in Control(server).calls() if call.region == "us-west-2"]
    # AWS keeps no gateway that has no connections, and no connection without its gateway.
    assert made.index("ModifyVpnConnection") < made.index("DeleteVpnGateway")
    after = connections(project)
    assert set(after) == {"rack-us-west-2", "hall-us-west-2"}
    assert after["rack-us-west-2"] == before["rack-us-west-2"]

    aws = Aws(localaws.environment(server, "us-west-2"))
    west, east = aws.client("ec2", "us-west-2"), aws.client("ec2", "us-east-1")
    [table] = west.describe_transit_gateway_route_tables()["TransitGatewayRouteTables"]
    learning = west.get_transit_gateway_route_table_propagations(
        TransitGatewayRouteTableId=table["TransitGatewayRouteTableId"]
    )["TransitGatewayRouteTablePropagations"]
    assert sorted(row["ResourceType"] for row in learning) == ["vpc", "vpn", "vpn"]
    [west_vpc], [east_vpc] = (
        [vpc["CidrBlock"] for vpc in client.describe_vpcs()["Vpcs"] if not vpc["IsDefault"]]
        for client in (west, east)
    )
    # What BGP tells is not stated; behind a peering everything is.
    lans = {"10.120.0.0/22", "192.168.64.0/22"}
    assert transit_routes(aws, "us-west-2") == {east_vpc: "peering", "192.168.64.0/22": "vpn"}
    assert transit_routes(aws, "us-east-1") == dict.fromkeys({west_vpc, *lans}, "peering")
    assert vpc_routes(aws, "us-west-2") == {east_vpc, *lans}
    assert vpc_routes(aws, "us-east-1") == {west_vpc, *lans}

    project.invoke("plan", "--detailed-exitcode")
    project.invoke("destroy", "--confirm", "lab")
    assert localaws.inventory(server) == {}
