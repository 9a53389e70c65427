"""Undeclared rules, routes and entry points of a VPC, and settings of its load balancers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Resource, Undeclared, chunks, on, pages

_TARGETS = (
    "GatewayId", "NatGatewayId", "TransitGatewayId", "VpcPeeringConnectionId", "NetworkInterfaceId",
    "EgressOnlyInternetGatewayId", "LocalGatewayId", "CarrierGatewayId", "CoreNetworkArn",
)  # fmt: skip
_DESTINATIONS = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")


def rules(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Rules of security groups. Those of a VPC's default group are managed by aws_default_security_group."""
    groups = declared.by("id", "aws_security_group", region)
    ours = declared.values("aws_vpc_security_group_ingress_rule", "security_group_rule_id")
    ours |= declared.values("aws_vpc_security_group_egress_rule", "security_group_rule_id")
    for ids in chunks(groups):
        asked = [{"Name": "group-id", "Values": ids}]
        for page in pages(aws.client("ec2", region), "describe_security_group_rules", Filters=asked):
            for rule in page["SecurityGroupRules"]:
                name = rule["SecurityGroupRuleId"]
                if (name,) not in ours and rule["GroupId"] in groups:
                    way = "egress" if rule["IsEgress"] else "ingress"
                    yield on(
                        groups[rule["GroupId"]], "security group rule", name, f"{way} {_rule(rule)} ({name})",
                        "ec2", f"revoke_security_group_{way}",
                        GroupId=rule["GroupId"], SecurityGroupRuleIds=[name],
                    )  # fmt: skip


def _rule(rule: Mapping[str, Any]) -> str:
    """``tcp 22 from 0.0.0.0/0 "by hand"``."""
    protocol = "all traffic" if rule["IpProtocol"] == "-1" else rule["IpProtocol"]
    first, last = rule.get("FromPort"), rule.get("ToPort")
    ports = "" if first in (None, -1) else f" {first}" if first == last else f" {first}-{last}"
    referenced = (rule.get("ReferencedGroupInfo") or {}).get("GroupId")
    peer = rule.get("CidrIpv4") or rule.get("CidrIpv6") or rule.get("PrefixListId") or referenced
    said = f' "{rule["Description"]}"' if rule.get("Description") else ""
    return f"{protocol}{ports} {'to' if rule['IsEgress'] else 'from'} {peer}{said}"


def routes(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Routes in our tables and in a VPC's main table, gateways that propagate routes into them, tables of
    others, and our subnets that are associated with such a table (AWS allows one association per subnet)."""
    subnets = declared.by("id", "aws_subnet", region)
    associations = declared.values("aws_route_table_association", "id")
    tables = declared.by("id", "aws_route_table", region)
    vpcs = declared.by("id", "aws_vpc", region)
    ours = {
        (table, destination)
        for table, *destinations in declared.values(
            "aws_route",
            "route_table_id",
            "destination_cidr_block",
            "destination_ipv6_cidr_block",
            "destination_prefix_list_id",
        )
        for destination in destinations
        if destination
    }
    propagated = declared.values("aws_vpn_gateway_route_propagation", "route_table_id", "vpn_gateway_id")
    for table in _in_vpcs(aws, region, vpcs, "describe_route_tables", "RouteTables"):
        name = table["RouteTableId"]
        is_main = any(link.get("Main") for link in table.get("Associations", ()))
        holder = tables.get(name) or vpcs[table["VpcId"]]
        for link in table.get("Associations", ()):
            own, association = subnets.get(link.get("SubnetId", "")), link["RouteTableAssociationId"]
            if own and (association,) not in associations:
                yield on(
                    own, "route table association", association, f"{association} with {name}",
                    "ec2", "disassociate_route_table", AssociationId=association,
                )  # fmt: skip
        if name not in tables and not is_main:
            yield on(holder, "route table", name, f"{name} in the VPC")
            continue
        for route in table.get("Routes", ()):
            field = next((each for each in _DESTINATIONS if route.get(each)), "")
            target = next((str(route[each]) for each in _TARGETS if route.get(each)), "nothing")
            if route.get("Origin") != "CreateRoute" or target.startswith("vpce-") or not field:
                continue  # created by AWS, or by an endpoint or gateway that is compared itself
            if (name, route[field]) not in ours:
                which = f"{route[field]} to {target} in {'the main table ' if is_main else ''}{name}"
                yield on(
                    holder, "route", f"{name} {route[field]}", which,
                    "ec2", "delete_route", RouteTableId=name, **{field: route[field]},
                )  # fmt: skip
        for gateway in table.get("PropagatingVgws", ()):
            if (name, gateway["GatewayId"]) not in propagated:
                yield on(
                    holder, "route propagation", f"{name} {gateway['GatewayId']}",
                    f"of {gateway['GatewayId']} into {name}",
                    "ec2", "disable_vgw_route_propagation",
                    RouteTableId=name, GatewayId=gateway["GatewayId"],
                )  # fmt: skip


def network_acls(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Our subnets with another network ACL than the VPC's default one, which is declared."""
    vpcs = declared.by("id", "aws_vpc", region)
    subnets = declared.by("id", "aws_subnet", region)
    acls = list(_in_vpcs(aws, region, vpcs, "describe_network_acls", "NetworkAcls"))
    default = {acl["VpcId"]: acl["NetworkAclId"] for acl in acls if acl["IsDefault"]}
    for acl in acls:
        for link in [] if acl["IsDefault"] else acl["Associations"]:
            if link["SubnetId"] in subnets:
                yield on(
                    subnets[link["SubnetId"]], "network ACL", acl["NetworkAclId"],
                    f"{acl['NetworkAclId']} instead of the VPC's default one",
                    "ec2", "replace_network_acl_association",
                    AssociationId=link["NetworkAclAssociationId"], NetworkAclId=default[acl["VpcId"]],
                )  # fmt: skip


def ways_in(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Others' peering connections, endpoints and subnets in our VPCs: they may hold someone's work."""
    vpcs = declared.by("id", "aws_vpc", region)
    ec2 = aws.client("ec2", region)
    peered = {name for (name,) in declared.values("aws_vpc_peering_connection", "id")}
    for side in ("requester", "accepter"):
        for ids in chunks(vpcs):
            asked = [{"Name": f"{side}-vpc-info.vpc-id", "Values": ids}]
            for page in pages(ec2, "describe_vpc_peering_connections", Filters=asked):
                for peering in page["VpcPeeringConnections"]:
                    name, status = peering["VpcPeeringConnectionId"], peering["Status"]["Code"]
                    own = peering[f"{side.capitalize()}VpcInfo"]["VpcId"]
                    if (
                        own in vpcs
                        and name not in peered
                        and status in ("active", "pending-acceptance", "provisioning")
                    ):
                        other = peering["AccepterVpcInfo" if side == "requester" else "RequesterVpcInfo"]
                        what = f"{name} ({status}) to {_vpc(other)}"
                        yield on(vpcs[own], "peering connection", name, what)
    endpoints = declared.values("aws_vpc_endpoint", "id")
    for endpoint in _in_vpcs(aws, region, vpcs, "describe_vpc_endpoints", "VpcEndpoints"):
        name = endpoint["VpcEndpointId"]
        if (name,) not in endpoints and str(endpoint.get("State", "")).lower() not in ("deleting", "deleted"):
            yield on(vpcs[endpoint["VpcId"]], "endpoint", name, f"{name} to {endpoint['ServiceName']}")
    subnets = declared.values("aws_subnet", "id")
    for subnet in _in_vpcs(aws, region, vpcs, "describe_subnets", "Subnets"):
        name = subnet["SubnetId"]
        if (name,) not in subnets:
            yield on(vpcs[subnet["VpcId"]], "subnet", name, f"{name} ({subnet['CidrBlock']})")


def blocks(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Secondary CIDR blocks of our VPCs, and DHCP options other than AWS's default. Both are only reported:
    others may have subnets in a block, and AWS's default option set has no name to restore."""
    vpcs = declared.by("id", "aws_vpc", region)
    extra = declared.values("aws_vpc_ipv4_cidr_block_association", "id")
    chosen = declared.values("aws_vpc_dhcp_options_association", "vpc_id", "dhcp_options_id")
    options: dict[str, list[Resource]] = {}
    for vpc in _in_vpcs(aws, region, vpcs, "describe_vpcs", "Vpcs"):
        holder = vpcs[vpc["VpcId"]]
        for field, key in (("CidrBlock", "CidrBlockState"), ("Ipv6CidrBlock", "Ipv6CidrBlockState")):
            for each in vpc.get(f"{field}AssociationSet", ()):
                block, name = each[field], each["AssociationId"]
                there = each[key]["State"] in ("associating", "associated")
                if there and block != vpc.get("CidrBlock") and (name,) not in extra:
                    yield on(holder, "VPC block", name, f"{block} ({name})")
        if (vpc["VpcId"], vpc["DhcpOptionsId"]) not in chosen:
            options.setdefault(vpc["DhcpOptionsId"], []).append(holder)
    for ids in chunks(options):
        asked = [{"Name": "dhcp-options-id", "Values": ids}]
        for page in pages(aws.client("ec2", region), "describe_dhcp_options", Filters=asked):
            for row in page["DhcpOptions"]:
                said = {
                    each["Key"]: [value["Value"] for value in each["Values"]]
                    for each in row["DhcpConfigurations"]
                }
                name = row["DhcpOptionsId"]
                for holder in [] if said == _own_options(region) else options.get(name, ()):
                    shown = ", ".join(f"{key} {' '.join(values)}" for key, values in sorted(said.items()))
                    yield on(holder, "DHCP options", name, f"{name}: {shown}")


def _own_options(region: str) -> dict[str, list[str]]:
    """The DHCP options of a new VPC (VPC User Guide, "Default DHCP option set")."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return {"domain-name": [domain], "domain-name-servers": ["AmazonProvidedDNS"]}


def interfaces(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Secondary network interfaces of our instances, which none of our security groups covers. Only
    reported."""
    instances = declared.by("id", "aws_instance", region)
    ours = declared.values("aws_network_interface", "id")
    ours |= declared.values("aws_network_interface_attachment", "network_interface_id")
    for ids in chunks(instances):
        asked = [{"Name": "attachment.instance-id", "Values": ids}]
        for page in pages(aws.client("ec2", region), "describe_network_interfaces", Filters=asked):
            for each in page["NetworkInterfaces"]:
                name, attachment = each["NetworkInterfaceId"], each.get("Attachment", {})
                holder = instances.get(attachment.get("InstanceId", ""))
                first = holder is not None and holder.values.get("primary_network_interface_id")
                if holder is None or name == first or attachment.get("DeviceIndex") == 0 or (name,) in ours:
                    continue
                what = f"{name} ({each.get('PrivateIpAddress')}) in {each['SubnetId']}"
                yield on(holder, "network interface", name, what)


def _vpc(side: Mapping[str, Any]) -> str:
    return " ".join(str(side[key]) for key in ("VpcId", "Region", "OwnerId") if side.get(key))


def _in_vpcs(
    aws: Aws, region: str, vpcs: Mapping[str, Resource], operation: str, key: str
) -> Iterator[Mapping[str, Any]]:
    for ids in chunks(vpcs):
        asked = [{"Name": "vpc-id", "Values": ids}]
        for page in pages(aws.client("ec2", region), operation, Filters=asked):
            yield from (each for each in page[key] if each["VpcId"] in vpcs)


def listeners(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Listeners of our load balancers."""
    elb = aws.client("elbv2", region)
    ours = declared.values("aws_lb_listener", "arn")
    for balancer, holder in declared.by("arn", "aws_lb", region).items():
        try:
            answer = list(pages(elb, "describe_listeners", LoadBalancerArn=balancer))
        except elb.exceptions.LoadBalancerNotFoundException:
            continue  # reported by Terraform
        for listener in (each for page in answer for each in page["Listeners"]):
            arn = listener["ListenerArn"]
            if (arn,) not in ours:
                which = f"{listener.get('Protocol', '')} {listener.get('Port', '')} ({arn})"
                yield on(holder, "listener", arn, which, "elbv2", "delete_listener", ListenerArn=arn)


def targets(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Targets of our load balancers."""
    elb = aws.client("elbv2", region)
    ours = declared.values("aws_lb_target_group_attachment", "target_group_arn", "target_id", "port")
    for group, holder in declared.by("arn", "aws_lb_target_group", region).items():
        try:
            answer = elb.describe_target_health(TargetGroupArn=group)
        except elb.exceptions.TargetGroupNotFoundException:
            continue
        for health in answer["TargetHealthDescriptions"]:
            target = {key: health["Target"][key] for key in ("Id", "Port") if key in health["Target"]}
            leaving = health.get("TargetHealth", {}).get("State") == "draining"
            if (group, target["Id"], target.get("Port")) not in ours and not leaving:
                name = f"{target['Id']}:{target.get('Port', '')}"
                yield on(
                    holder, "target", name, name,
                    "elbv2", "deregister_targets", TargetGroupArn=group, Targets=[target],
                )  # fmt: skip
