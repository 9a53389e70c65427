"""Behaviour that moto 5.2.5 lacks, or that differs from AWS, for the rendered resources.

Each module is about one service: moto's part of a service is imported when it is first called. Each entry of
``EXTENSIONS`` is named after the API call that it adds or fixes. Delete an entry and its function once moto
has the behaviour: ``tests/test_shipped_specs.py`` and ``tests/localaws`` apply every resource type with real
Terraform, and fail if that was too early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

from infra.localaws import plugin

EXTENSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "ec2": {
        "AssociateRouteTable": "vpcs.route_table_associations",
        "CopyImage": "machine_images.machine_images",
        "CreateCustomerGateway": "vpn_gateways.customer_gateways",
        "CreateFleet": "fleets.instant_fleets",
        "CreateLaunchTemplate": "fleets.launch_templates",
        "CreatePlacementGroup": "placement_groups.install",
        "CreateVpnConnection": "vpn_connections.install",
        "DeleteNatGateway": "vpcs.nat_gateways",
        "DeleteVpc": "vpcs.vpc_deletion",
        "DescribeImages": "machine_images.ubuntu_images",
        "DescribeSpotInstanceRequests": "fleets.spot_requests",
        "DescribeTags": "instances.resource_tags",
        "DescribeVpnGateways": "vpn_gateways.vpn_gateways",
        "DisassociateTransitGatewayRouteTable": "transit_gateways.install",
        "EnableVgwRoutePropagation": "vpn_gateways.vgw_route_propagation",
        "ModifyNetworkInterfaceAttribute": "instances.instance_groups",
        "ModifySecurityGroupRules": "vpcs.security_group_rules",
        "ModifyVpcEndpoint": "vpcs.vpc_endpoints",
        "MonitorInstances": "instances.monitoring",
        "RunInstances": "instances.run_instances",
    },
    "autoscaling": {
        "CompleteLifecycleAction": "auto_scaling_groups.lifecycle_actions",
        "CreateAutoScalingGroup": "auto_scaling_groups.auto_scaling_groups",
        "DescribeScalingActivities": "scaling_activities.install",
        "PutLifecycleHook": "auto_scaling_groups.lifecycle_hooks",
        "PutNotificationConfiguration": "auto_scaling_groups.group_notifications",
        "StartInstanceRefresh": "instance_refreshes.install",
        "TerminateInstanceInAutoScalingGroup": "auto_scaling_groups.group_terminations",
    },
    "cloudfront": {
        "CreateDistribution": "cloudfront.distributions",
    },
    "efs": {
        "PutBackupPolicy": "efs.backup_policies",
    },
    "elb": {  # moto's name for both generations
        "CreateLoadBalancer": "elb.load_balancers",
    },
    "rds": {
        "ModifyDBParameterGroup": "rds.parameter_groups",
    },
    "s3": {
        "DeleteBucketInventoryConfiguration": "s3.bucket_inventories",
        "PutBucketPolicy": "s3.bucket_policies",
    },
    "sts": {
        "AssumeRoleWithWebIdentity": "sts.web_identity",
    },
    "route53": {
        "ChangeResourceRecordSets": "route53.dns_changes",
        "GetHostedZone": "route53.hosted_zone_vpcs",
    },
}
"""Service, in moto's name → API call → the module here and its function."""

_installed: set[str] = set()


def install(service: str) -> None:
    """Add the extensions of a service to this process's moto. Idempotent."""
    if service in _installed:
        return
    _installed.add(service)
    if service != "ec2":
        install("ec2")  # autoscaling, elbv2 and efs use its backends
    for place in EXTENSIONS.get(service, {}).values():
        module, _, name = place.partition(".")
        add = cast("Callable[[], None]", getattr(import_module(f"{__name__}.{module}"), name))
        add()
    plugin.active.extend(service)
