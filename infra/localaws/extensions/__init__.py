"""What moto 5.2.5 lacks, or does otherwise than AWS, for the resources we render.

Each entry of ``EXTENSIONS`` is named after the API call it adds or fixes. Delete an entry, with its module,
once moto has the behaviour: ``tests/test_shipped_specs.py`` and ``tests/localaws`` apply every resource type
with real Terraform, so they say whether that was right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

from infra.localaws import plugin

EXTENSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "ec2": {
        "AssociateRouteTable": "route_table_associations",
        "CopyImage": "machine_images",
        "CreateCustomerGateway": "customer_gateways",
        "CreateFleet": "instant_fleets",
        "CreateLaunchTemplate": "launch_templates",
        "CreatePlacementGroup": "placement_groups",
        "CreateVpnConnection": "vpn_connections",
        "DeleteNatGateway": "nat_gateways",
        "DeleteVpc": "vpc_deletion",
        "DescribeImages": "ubuntu_images",
        "DescribeSpotInstanceRequests": "spot_requests",
        "DescribeTags": "resource_tags",
        "DescribeVpnGateways": "vpn_gateways",
        "DisassociateTransitGatewayRouteTable": "transit_gateways",
        "EnableVgwRoutePropagation": "vgw_route_propagation",
        "ModifyNetworkInterfaceAttribute": "instance_groups",
        "ModifySecurityGroupRules": "security_group_rules",
        "ModifyVpcEndpoint": "vpc_endpoints",
        "MonitorInstances": "monitoring",
        "RunInstances": "run_instances",
    },
    "autoscaling": {
        "CompleteLifecycleAction": "lifecycle_actions",
        "CreateAutoScalingGroup": "auto_scaling_groups",
        "DescribeScalingActivities": "scaling_activities",
        "PutLifecycleHook": "lifecycle_hooks",
        "PutNotificationConfiguration": "group_notifications",
        "StartInstanceRefresh": "instance_refreshes",
        "TerminateInstanceInAutoScalingGroup": "group_terminations",
    },
    "cloudfront": {
        "CreateDistribution": "distributions",
    },
    "efs": {
        "PutBackupPolicy": "backup_policies",
    },
    "elb": {  # moto's name for both generations
        "CreateLoadBalancer": "load_balancers",
    },
    "rds": {
        "ModifyDBParameterGroup": "parameter_groups",
    },
    "s3": {
        "DeleteBucketInventoryConfiguration": "bucket_inventories",
        "PutBucketPolicy": "bucket_policies",
    },
    "sts": {
        "AssumeRoleWithWebIdentity": "web_identity",
    },
    "route53": {
        "ChangeResourceRecordSets": "dns_changes",
        "GetHostedZone": "hosted_zone_vpcs",
    },
}
"""Service, as moto names it → API call → the module here whose ``install()`` adds it."""

_installed: set[str] = set()


def install(service: str) -> None:
    """Add what is ours to a service of this process's moto; a second time does nothing."""
    if service in _installed:
        return
    _installed.add(service)
    if service != "ec2":
        install("ec2")  # autoscaling, elbv2 and efs reach into its backends
    for module in EXTENSIONS.get(service, {}).values():
        add = cast("Callable[[], None]", import_module(f"{__name__}.{module}").install)
        add()
    plugin.active.extend(service)
