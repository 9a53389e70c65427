"""Undeclared routes of VPN connections and transit gateways, others' VPN connections, and access to file
systems."""

from __future__ import annotations

from collections.abc import Iterator

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Undeclared, chunks, on, pages

_GONE = ("deleted", "deleting")
_VOLUMES = "efs.csi.aws.com/cluster"
"""The tag of access points created by the driver (aws-efs-csi-driver, ``DefaultTagKey``)."""

_VPN_GATEWAYS = (
    ("aws_vpn_gateway", "VpnGatewayId", "vpn-gateway-id"),
    ("aws_ec2_transit_gateway", "TransitGatewayId", "transit-gateway-id"),
)
"""Gateways that VPN connections attach to: Terraform type, the connection's field with its id, and the
filter."""


def vpn_connections(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Static routes on our connections; others' connections to our gateways, which are only reported."""
    connections = declared.by("id", "aws_vpn_connection", region)
    ours = declared.values("aws_vpn_connection_route", "vpn_connection_id", "destination_cidr_block")
    for kind, key, asked in _VPN_GATEWAYS:
        gateways = declared.by("id", kind, region)
        found = [
            connection
            for ids in chunks(gateways)
            for connection in aws.client("ec2", region).describe_vpn_connections(
                Filters=[{"Name": asked, "Values": ids}]
            )["VpnConnections"]
        ]
        for connection in found:
            name = connection["VpnConnectionId"]
            if connection.get("State") in _GONE or connection.get(key) not in gateways:
                continue
            if name not in connections:
                what = f"{name} to {connection['CustomerGatewayId']}"
                yield on(gateways[connection[key]], "VPN connection", name, what)
                continue
            for route in connection.get("Routes", ()):
                block = route["DestinationCidrBlock"]
                if (name, block) not in ours and route.get("State") not in _GONE:
                    yield on(
                        connections[name], "VPN route", f"{name} {block}", f"{block} over {name}",
                        "ec2", "delete_vpn_connection_route",
                        VpnConnectionId=name, DestinationCidrBlock=block,
                    )  # fmt: skip


def transit_routes(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Static routes in route tables of our transit gateways."""
    ours = declared.values(
        "aws_ec2_transit_gateway_route", "transit_gateway_route_table_id", "destination_cidr_block"
    )
    for gateway in declared.of("aws_ec2_transit_gateway", region):
        table = gateway.values["association_default_route_table_id"]
        answer = aws.client("ec2", region).search_transit_gateway_routes(
            TransitGatewayRouteTableId=table, Filters=[{"Name": "type", "Values": ["static"]}]
        )
        for route in answer["Routes"]:
            block = route["DestinationCidrBlock"]
            if (table, block) not in ours and route.get("State") not in _GONE:
                yield on(
                    gateway, "transit gateway route", f"{table} {block}", f"{block} in {table}",
                    "ec2", "delete_transit_gateway_route",
                    TransitGatewayRouteTableId=table, DestinationCidrBlock=block,
                )  # fmt: skip


def mount_targets(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Mount targets of our file systems."""
    efs = aws.client("efs", region)
    ours = declared.values("aws_efs_mount_target", "id")
    for name, holder in declared.by("id", "aws_efs_file_system", region).items():
        try:
            answer = list(pages(efs, "describe_mount_targets", FileSystemId=name))
        except efs.exceptions.FileSystemNotFound:
            continue
        for target in (each for page in answer for each in page["MountTargets"]):
            if (target["MountTargetId"],) not in ours:
                what = f"{target['MountTargetId']} in {target['SubnetId']}"
                yield on(holder, "mount target", target["MountTargetId"], what)


def access_points(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Access points of our file systems, which are only reported, as they may be mounted.

    The EFS CSI driver creates one per volume, tagged and with a directory of its own; those are not
    reported, unless they expose the root of the file system.
    """
    efs = aws.client("efs", region)
    ours = declared.values("aws_efs_access_point", "id")
    for name, holder in declared.by("id", "aws_efs_file_system", region).items():
        try:
            answer = list(pages(efs, "describe_access_points", FileSystemId=name))
        except efs.exceptions.FileSystemNotFound:
            continue
        for point in (each for page in answer for each in page["AccessPoints"]):
            identifier, path = point["AccessPointId"], point.get("RootDirectory", {}).get("Path", "/")
            of_a_volume = any(tag["Key"] == _VOLUMES for tag in point.get("Tags", ())) and path != "/"
            if (identifier,) in ours or of_a_volume or point.get("LifeCycleState") in _GONE:
                continue
            user = point.get("PosixUser")
            who = f"as uid {user['Uid']}, gid {user['Gid']}" if user else "as the client that mounts it"
            yield on(holder, "access point", identifier, f"{identifier} to {path} {who}")
