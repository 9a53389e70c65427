"""Finds settings on our AWS resources that are not in Terraform's state.

Terraform compares only what is in its state. A rule that somebody adds to a security group is a separate
resource, which the state does not have. The AWS provider 5.100 manages a few such lists exclusively
(``aws_iam_role_policies_exclusive``), but not most of them. These are compared here with what AWS lists: the
next apply removes additions to our resources; those that may hold someone's work are only reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from infra.drive.aws import Aws, RegionsError, aws_errors, each_region
from infra.drive.undeclared import buckets, dns, links, logs, network, scaling
from infra.drive.undeclared.model import Call, Declared, Find, Undeclared
from infra.errors import DriveError

__all__ = ["Call", "Declared", "Undeclared", "find", "remove"]

KINDS: Final[tuple[tuple[Find, tuple[str, ...], tuple[str, ...]], ...]] = (
    (network.rules, ("aws_security_group",), ("ec2:DescribeSecurityGroupRules",)),
    (network.routes, ("aws_vpc",), ("ec2:DescribeRouteTables",)),
    (network.network_acls, ("aws_vpc",), ("ec2:DescribeNetworkAcls",)),
    (
        network.ways_in,
        ("aws_vpc",),
        ("ec2:DescribeVpcPeeringConnections", "ec2:DescribeVpcEndpoints", "ec2:DescribeSubnets"),
    ),
    (network.blocks, ("aws_vpc",), ("ec2:DescribeVpcs", "ec2:DescribeDhcpOptions")),
    (network.interfaces, ("aws_instance",), ("ec2:DescribeNetworkInterfaces",)),
    (network.listeners, ("aws_lb",), ("elasticloadbalancing:DescribeListeners",)),
    (network.targets, ("aws_lb_target_group",), ("elasticloadbalancing:DescribeTargetHealth",)),
    (scaling.policies, ("aws_autoscaling_group",), ("autoscaling:DescribePolicies",)),
    (scaling.scheduled_actions, ("aws_autoscaling_group",), ("autoscaling:DescribeScheduledActions",)),
    (scaling.hooks, ("aws_autoscaling_group",), ("autoscaling:DescribeLifecycleHooks",)),
    (scaling.notifications, ("aws_autoscaling_group",), ("autoscaling:DescribeNotificationConfigurations",)),
    (dns.records, ("aws_route53_zone",), ("route53:ListResourceRecordSets",)),
    (dns.zone_vpcs, ("aws_route53_zone",), ("route53:GetHostedZone",)),
    (
        buckets.settings,
        ("aws_s3_bucket",),
        (
            "s3:GetBucketCORS", "s3:GetBucketWebsite", "s3:GetReplicationConfiguration",
            "s3:GetBucketLogging", "s3:GetBucketNotification", "s3:GetAccelerateConfiguration",
            "s3:GetBucketRequestPayment",
        ),
    ),
    (buckets.inventories, ("aws_s3_bucket",), ("s3:GetInventoryConfiguration",)),
    (
        logs.filters,
        ("aws_cloudwatch_log_group",),
        ("logs:DescribeMetricFilters", "logs:DescribeSubscriptionFilters"),
    ),
    (
        links.vpn_connections,
        ("aws_vpn_gateway", "aws_ec2_transit_gateway"),
        ("ec2:DescribeVpnConnections",),
    ),
    (links.transit_routes, ("aws_ec2_transit_gateway",), ("ec2:SearchTransitGatewayRoutes",)),
    (links.mount_targets, ("aws_efs_file_system",), ("elasticfilesystem:DescribeMountTargets",)),
    (links.access_points, ("aws_efs_file_system",), ("elasticfilesystem:DescribeAccessPoints",)),
)  # fmt: skip
"""The function that searches, the Terraform types of which the region must have one, and the IAM actions
needed."""

_AT_ONCE: Final = 8
_GONE: Final = ("NotFound", "NoSuch", "InvalidChangeBatch", "ValidationError", "InvalidSecurityGroupRuleId")
"""Parts of AWS's error codes for resources that no longer exist."""


def find(aws: Aws, declared: Declared, *, regions: Iterable[str] | None = None) -> tuple[Undeclared, ...]:
    """All undeclared settings, sorted by holder; in ``regions``, or in every region that the state has
    resources in.

    Raises ``DriveError`` if AWS cannot be queried or refuses: an unseen rule may allow access.
    """
    wanted = declared.regions if regions is None else [one for one in declared.regions if one in set(regions)]

    def look(region: str) -> list[Undeclared]:
        return [each for kind in KINDS for each in _look(aws, region, declared, kind)]

    try:
        found = each_region(wanted, look)
    except RegionsError as problem:
        raise DriveError("\n".join(map(str, problem.failed.values()))) from None
    # Some, such as the records of a zone, are found from every region.
    return tuple(
        sorted(
            {(each.holder, each.kind, each.id): each for those in found.values() for each in those}.values(),
            key=lambda each: (each.holder, each.kind, each.id),
        )
    )


def _look(
    aws: Aws, region: str, declared: Declared, kind: tuple[Find, tuple[str, ...], tuple[str, ...]]
) -> list[Undeclared]:
    looks, types, needs = kind
    if not any(declared.of(each, region) for each in types):
        return []
    with aws_errors(f"look for undeclared resources in {region}", needs=needs, quoting=True):
        return list(looks(aws, region, declared))


def remove(aws: Aws, undeclared: Iterable[Undeclared]) -> None:
    """Remove what can be removed; settings that no longer exist are not an error. Raises ``DriveError``
    after trying all of them."""
    from infra.drive.aws import AwsError

    def one(each: Undeclared) -> DriveError | None:
        assert each.removal is not None
        service, operation = each.removal.service, each.removal.operation
        action = operation.replace("_", " ").title().replace(" ", "")
        try:
            with aws_errors(
                f"remove {each.what} from {each.holder}", needs=(f"{service}:{action}",), quoting=True
            ):
                getattr(aws.client(service, each.region), operation)(**each.removal.parameters)
        except AwsError as problem:
            return None if any(part in problem.code for part in _GONE) else problem
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = list(pool.map(one, (each for each in undeclared if each.removal)))
    if failed := [str(problem) for problem in problems if problem]:
        raise DriveError("\n".join(failed))
