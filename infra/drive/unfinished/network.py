"""Finds EC2 resources by the tags Name and environment, which are set by the creating call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from infra.drive.aws import Aws
from infra.drive.unfinished.model import ENVIRONMENT, Creation, Look, Seen

_ALIVE: Final = ("pending", "available")

_TAGGED: Final[Mapping[str, tuple[str, str, str, Mapping[str, Sequence[str]]]]] = {
    "aws_customer_gateway": (
        "describe_customer_gateways", "CustomerGateways", "CustomerGatewayId", {"state": _ALIVE},
    ),
    "aws_ec2_transit_gateway": (
        "describe_transit_gateways", "TransitGateways", "TransitGatewayId", {"state": _ALIVE},
    ),
    "aws_ec2_transit_gateway_peering_attachment": (
        "describe_transit_gateway_peering_attachments",
        "TransitGatewayPeeringAttachments",
        "TransitGatewayAttachmentId",
        {"state": ("initiatingRequest", "pendingAcceptance", *_ALIVE)},
    ),
    "aws_ec2_transit_gateway_vpc_attachment": (
        "describe_transit_gateway_vpc_attachments",
        "TransitGatewayVpcAttachments",
        "TransitGatewayAttachmentId",
        {"state": _ALIVE},
    ),
    "aws_eip": ("describe_addresses", "Addresses", "AllocationId", {}),
    "aws_flow_log": ("describe_flow_logs", "FlowLogs", "FlowLogId", {}),
    "aws_instance": (
        "describe_instances", "Instances", "InstanceId",
        {"instance-state-name": ("pending", "running", "stopping", "stopped")},
    ),
    "aws_internet_gateway": ("describe_internet_gateways", "InternetGateways", "InternetGatewayId", {}),
    "aws_nat_gateway": ("describe_nat_gateways", "NatGateways", "NatGatewayId", {"state": _ALIVE}),
    "aws_route_table": ("describe_route_tables", "RouteTables", "RouteTableId", {}),
    "aws_security_group": ("describe_security_groups", "SecurityGroups", "GroupId", {}),
    "aws_subnet": ("describe_subnets", "Subnets", "SubnetId", {}),
    "aws_vpc": ("describe_vpcs", "Vpcs", "VpcId", {}),
    "aws_vpc_endpoint": ("describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId", {}),
    "aws_vpc_peering_connection": (
        "describe_vpc_peering_connections", "VpcPeeringConnections", "VpcPeeringConnectionId",
        {"status-code": ("initiating-request", "pending-acceptance", "provisioning", "active")},
    ),
    "aws_vpn_connection": (
        "describe_vpn_connections", "VpnConnections", "VpnConnectionId", {"state": _ALIVE},
    ),
    "aws_vpn_gateway": ("describe_vpn_gateways", "VpnGateways", "VpnGatewayId", {"state": _ALIVE}),
}  # fmt: skip
"""Terraform type → the call that lists it, the key of the response's list, the key of the id, and filters
that exclude deleted ones."""


def _tagged(
    call: tuple[str, str, str, Mapping[str, Sequence[str]]],
    aws: Aws,
    region: str,
    those: Sequence[Creation],
) -> Iterator[tuple[Creation, Seen]]:
    operation, rows, identifier, alive = call
    by_name = {one.tags["Name"]: one for one in those if one.tags.get("Name") and one.environment}
    if not by_name:
        return
    filters = {f"tag:{ENVIRONMENT}": sorted({one.environment for one in by_name.values()}), **alive}
    asked = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
    # The parameter of this call is in the singular.
    keyed = {"Filter" if operation == "describe_flow_logs" else "Filters": asked}
    client = aws.client("ec2", region)
    answers = (
        client.get_paginator(operation).paginate(**keyed)
        if client.can_paginate(operation)
        else [getattr(client, operation)(**keyed)]
    )
    for each in (each for answer in answers for each in _listed(answer, rows)):
        tags = tagged(each.get("Tags"))
        if one := by_name.get(tags.get("Name", "")):
            yield one, Seen(str(each[identifier]), tags)


def _listed(answer: Mapping[str, Any], rows: str) -> list[Mapping[str, Any]]:
    if "Reservations" in answer:
        return [each for held in answer["Reservations"] for each in held[rows]]
    return list(answer[rows])


def tagged(rows: Any) -> dict[str, str]:
    """Tags in the format of most AWS APIs, as a dict."""
    return {str(each["Key"]): str(each["Value"]) for each in rows or ()}


LOOKS: Final[Mapping[str, tuple[Look, tuple[str, ...]]]] = {
    kind: (partial(_tagged, call), (f"ec2:{call[0].replace('_', ' ').title().replace(' ', '')}",))
    for kind, call in _TAGGED.items()
}
