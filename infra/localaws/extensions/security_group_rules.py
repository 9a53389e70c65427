"""ModifySecurityGroupRules, and descriptions of rules that name a group or a prefix list.

moto keeps a description only beside a block of addresses, and changes nothing but blocks and ports.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_SecurityGroupRule.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifySecurityGroupRules.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import (
    InvalidSecurityGroupNotFoundError,
    InvalidSecurityGroupRuleIdNotFoundError,
)
from moto.ec2.models import EC2Backend
from moto.ec2.models.security_groups import SecurityGroupRule

from infra.localaws.patching import around, method


def install() -> None:
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
        # The description is not part of a rule's identity: two rules that differ by it alone are duplicates.
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
