"""EC2: VPCs and their parts."""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import (
    EC2ClientError,
    InvalidSecurityGroupNotFoundError,
    InvalidSecurityGroupRuleIdNotFoundError,
)
from moto.ec2.models import EC2Backend
from moto.ec2.models.security_groups import SecurityGroupRule

from infra.localaws.patching import around, method


def vpc_deletion() -> None:
    """DeleteVpc deletes the VPC's default network ACL; moto keeps it.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteVpc.html
    """

    @around(EC2Backend)
    def delete_vpc(original: Any, self: Any, vpc_id: str) -> Any:
        answer = original(self, vpc_id)
        for name, acl in list(self.network_acls.items()):
            if acl.vpc_id == vpc_id:
                del self.network_acls[name]
        return answer


def route_table_associations() -> None:
    """AssociateRouteTable refuses a subnet that is associated with another table.

    ``Resource.AlreadyAssociated``:
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
    """

    @around(EC2Backend)
    def associate_route_table(
        original: Any, self: Any, route_table_id: str, gateway_id: Any = None, subnet_id: Any = None
    ) -> Any:
        for table in self.route_tables.values():
            if subnet_id and table.id != route_table_id and subnet_id in table._associations.values():
                raise EC2ClientError(
                    "Resource.AlreadyAssociated",
                    f"the specified association for route table {route_table_id} conflicts with an existing "
                    "association",
                )
        return original(self, route_table_id, gateway_id, subnet_id)


def vpc_endpoints() -> None:
    """ModifyVpcEndpoint: a gateway endpoint's routes are added and removed with its route tables.

    moto creates them only with the endpoint, so that the endpoint could not be deleted later.

    https://docs.aws.amazon.com/vpc/latest/privatelink/gateway-endpoints.html
    """

    @around(EC2Backend)
    def modify_vpc_endpoint(original: Any, self: Any, vpc_id: str, *args: Any, **kwargs: Any) -> None:
        (endpoint,) = self.describe_vpc_endpoints(vpc_end_point_ids=[vpc_id])  # vpc_id is the endpoint's id
        before = set(endpoint.route_table_ids)
        original(self, vpc_id, *args, **kwargs)
        if not (prefixes := endpoint.destination_prefix_list_id):
            return
        after = set(endpoint.route_table_ids)
        for table in sorted(after - before):
            self.create_route(table, None, gateway_id=endpoint.id, destination_prefix_list_id=prefixes)
        for table in sorted(before - after):
            self.delete_route(table, prefixes)


def nat_gateways() -> None:
    """DeleteNatGateway deletes its network interface; moto keeps it, and its address stays associated.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteNatGateway.html
    """

    @around(EC2Backend)
    def delete_nat_gateway(original: Any, self: Any, nat_gateway_id: str) -> Any:
        gateway = original(self, nat_gateway_id)
        for address in self.addresses:
            if address.eni is gateway._eni:
                address.eni = None
                address.association_id = None
        self.enis.pop(gateway._eni.id, None)
        return gateway


def security_group_rules() -> None:
    """ModifySecurityGroupRules, and descriptions of rules that refer to a group or a prefix list.

    moto stores descriptions only for CIDR blocks, and changes only blocks and ports.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_SecurityGroupRule.html
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifySecurityGroupRules.html
    """

    @around(SecurityGroupRule)
    def __init__(  # noqa: N807
        original: Any,
        self: Any,
        ec2_backend: Any,
        ip_protocol: Any,
        group_id: Any,
        from_port: Any,
        to_port: Any,
        ip_range: Any,
        source_group: Any = None,
        prefix_list_id: Any = None,
        **kwargs: Any,
    ) -> None:
        # The description is not part of a rule's identity: rules that differ only in it are duplicates.
        source_group = dict(source_group or {})
        said = source_group.pop("Description", None) or (prefix_list_id or {}).get("Description")
        original(
            self, ec2_backend, ip_protocol, group_id, from_port, to_port,
            ip_range, source_group, prefix_list_id, **kwargs,
        )  # fmt: skip
        if said is not None:
            self.ip_range = {"Description": said}

    @method(EC2Backend)
    def modify_security_group_rules(self: Any, group_id: str, rules: dict[str, dict[str, Any]]) -> None:
        group = self.get_security_group_by_name_or_id(group_id)
        if group is None:
            raise InvalidSecurityGroupNotFoundError(group_id)
        for rule_id, wanted in rules.items():
            rule = group.get_rule(rule_id)
            if rule is None:
                raise InvalidSecurityGroupRuleIdNotFoundError(rule_id)
            rule.ip_protocol = wanted["IpProtocol"]
            everything = rule.ip_protocol == "-1"
            rule.from_port = None if everything else int(wanted["FromPort"])
            rule.to_port = None if everything else int(wanted["ToPort"])
            names = {"CidrIpv4": "CidrIp", "CidrIpv6": "CidrIpv6", "Description": "Description"}
            rule.ip_range = {ours: wanted[theirs] for theirs, ours in names.items() if wanted.get(theirs)}
            group_named = wanted.get("ReferencedGroupId")
            rule.source_group = {"GroupId": group_named, "UserId": self.account_id} if group_named else {}
            rule.prefix_list_id = wanted.get("PrefixListId")
