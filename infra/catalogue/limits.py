"""What AWS takes: lengths of names, sizes of blocks, counts of things.

Names that we make are cut by ``infra.model.names``; names that people choose are refused by checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NameLimit:
    """What AWS takes as the name of a thing."""

    characters: int
    """The most."""
    least: int = 1
    source: str = ""


_ELB: Final = "https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference"
_EC2: Final = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference"
_IAM: Final = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"
_ASG: Final = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference"
_S3: Final = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"
_TAGS: Final = "https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"
_RDS: Final = "https://docs.aws.amazon.com/AmazonRDS/latest/APIReference"
_DNS: Final = "RFC 1035, 2.3.4"

NAMES: Final[dict[str, NameLimit]] = {
    "auto-scaling-group": NameLimit(255, source=f"{_ASG}/API_CreateAutoScalingGroup.html"),
    "db-instance": NameLimit(63, source=f"{_RDS}/API_CreateDBInstance.html"),
    "dns-label": NameLimit(63, source=_DNS),
    "dns-name": NameLimit(253, source=_DNS),
    "iam-instance-profile": NameLimit(128, source=_IAM),
    "iam-policy": NameLimit(128, source=_IAM),
    "iam-role": NameLimit(64, source=_IAM),
    "launch-configuration": NameLimit(255, source=f"{_ASG}/API_CreateLaunchConfiguration.html"),
    "launch-template": NameLimit(128, 3, source=f"{_EC2}/API_CreateLaunchTemplate.html"),
    "lifecycle-hook": NameLimit(255, source=f"{_ASG}/API_PutLifecycleHook.html"),
    "load-balancer": NameLimit(32, source=f"{_ELB}/API_CreateLoadBalancer.html"),
    "placement-group": NameLimit(255, source=f"{_EC2}/API_CreatePlacementGroup.html"),
    "s3-bucket": NameLimit(63, 3, source=_S3),
    "security-group": NameLimit(255, source=f"{_EC2}/API_CreateSecurityGroup.html"),
    "security-group-description": NameLimit(255, source=f"{_EC2}/API_CreateSecurityGroup.html"),
    "tag-key": NameLimit(128, source=_TAGS),
    "tag-value": NameLimit(256, 0, source=_TAGS),
    "target-group": NameLimit(32, source=f"{_ELB}/API_CreateTargetGroup.html"),
}
"""Kind of thing → what its name may be."""

TAGS_PER_RESOURCE: Final = 50
"""https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"""

VPC_PREFIXES: Final = range(16, 29)
"""Prefix lengths of VPCs and subnets, /16 to /28
(https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html)."""

RESERVED_PER_SUBNET: Final = 5
"""Addresses of a subnet that AWS keeps (https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html)."""
