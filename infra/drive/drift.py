"""What changed behind Terraform's back, from a plan's JSON. Pure.

A plan compares twice: the world with the state (``resource_drift``), and with the configuration
(``resource_changes``). The second is drift too where the configuration is the one that was applied, because
an apply writes into the state what it reads, no matter who changed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from infra.drive.plan import UNKNOWN, Attribute, Change, parse

ECHOES: Final[Mapping[str, frozenset[str]]] = {
    "aws_autoscaling_group": frozenset({"desired_capacity", "predicted_capacity", "warm_pool_size"}),
    "aws_efs_file_system": frozenset({"number_of_mount_targets", "size_in_bytes"}),
    "aws_eip": frozenset({"association_id", "instance", "network_interface", "private_dns", "private_ip"}),
    "aws_iam_role": frozenset({"inline_policy", "managed_policy_arns"}),
    "aws_lb_target_group": frozenset({"load_balancer_arns"}),
    "aws_route53_zone": frozenset({"vpc"}),
    "aws_route_table": frozenset({"propagating_vgws", "route"}),
    "aws_s3_bucket": frozenset(
        {
            "acceleration_status", "cors_rule", "grant", "lifecycle_rule", "logging", "policy",
            "replication_configuration", "request_payer", "server_side_encryption_configuration",
            "versioning", "website", "website_domain", "website_endpoint",
        }
    ),
    "aws_security_group": frozenset({"egress", "ingress"}),
    "aws_vpc_endpoint": frozenset({"cidr_blocks", "dns_entry", "network_interface_ids"}),
    "aws_vpc_peering_connection": frozenset({"accepter", "requester"}),
    "aws_vpc_peering_connection_accepter": frozenset({"accepter", "requester"}),
    "aws_vpn_connection": frozenset({"routes", "vgw_telemetry"}),
}  # fmt: skip
"""Type → attributes that repeat another resource, which is compared itself (a rule in its group), or what
`infra.drive.undeclared` lists; or that AWS changes by itself: sizes, telemetry, what the autoscaler sets."""


def changes(shown: Mapping[str, Any], sites: Mapping[str, str]) -> tuple[Change, ...]:
    """Each resource that is not as it was left, by address; its attributes as they were, and as they are.

    ``shown`` is a plan as ``terraform show -json`` gives it, ``sites`` as in `infra.drive.plan.parse`.
    """
    plan = parse(shown, sites)
    found = {one.address: kept for one in plan.drift for kept in _telling(one)}
    newer = frozenset(_newer(shown))
    for one in plan.changes:
        if one.action not in ("update", "replace"):
            continue  # what is gone was in the drift; what was never there is not drift
        before = found.get(one.address)
        seen = {_top(each) for each in before.attributes} if before else set()
        more = tuple(
            Attribute(each.path, each.after, each.before, replaces=False)
            for each in one.attributes
            if each.after != UNKNOWN and str(each.after) not in newer and _top(each) not in seen
        )
        for kept in _telling(replace(one, action="update", reason="", loss="", attributes=more)):
            attributes = (*before.attributes, *kept.attributes) if before else kept.attributes
            found[one.address] = replace(before or kept, attributes=attributes)
    return tuple(found[address] for address in sorted(found))


def _telling(change: Change) -> Iterator[Change]:
    """The change without what says nothing; none where that is all."""
    echoes = ECHOES.get(change.type, frozenset())
    kept = tuple(one for one in change.attributes if _top(one) not in echoes | {"tags_all"})
    if kept or change.action != "update":
        yield replace(change, attributes=kept)


def _top(attribute: Attribute) -> str:
    """``tags`` of ``tags.Name``."""
    return attribute.path.split("[")[0].split(".")[0]


def _newer(shown: Mapping[str, Any]) -> Iterator[str]:
    """What data sources say now and no resource has yet: the id of a newer image is news, not drift."""
    modules = [shown.get("prior_state", {}).get("values", {}).get("root_module", {})]
    for module in modules:
        modules += module.get("child_modules", ())
        for one in module.get("resources", ()):
            if one["mode"] == "data" and one["type"] == "aws_ami":
                yield str(one["values"].get("id"))
