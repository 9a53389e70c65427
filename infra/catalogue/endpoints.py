"""VPC endpoints: the services that have them, and their names at AWS.

A gateway endpoint is a route and free of charge; an interface endpoint is an address in each zone, with an
hourly price (AWS PrivateLink Guide, "AWS services that integrate with AWS PrivateLink").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

Word: TypeAlias = Literal[
    "s3", "autoscaling", "ec2", "ec2messages", "ecr", "elasticfilesystem", "elasticloadbalancing", "kms",
    "logs", "monitoring", "secretsmanager", "ssm", "ssmmessages", "sts",
]  # fmt: skip
"""The names of services in a spec."""

WORDS: Final[tuple[Word, ...]] = get_args(Word)

GATEWAYS: Final = frozenset({"s3"})
"""Services with a gateway endpoint."""

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"ecr": ("ecr.api", "ecr.dkr")}
"""A registry's API and the registry itself each have an endpoint (ECR User Guide, "Amazon ECR interface VPC
endpoints")."""

_CHINESE: Final = frozenset(
    {"autoscaling", "ec2", "ecr.api", "ecr.dkr", "elasticfilesystem", "monitoring", "sts"}
)
"""Services whose name begins with ``cn.`` in China; other names are the same everywhere. There is no rule:
``ec2 describe-vpc-endpoint-services`` lists them."""


def services(word: Word) -> tuple[str, ...]:
    """The services for a name in the spec: ``("ecr.api", "ecr.dkr")``."""
    return _PARTS.get(word, (word,))


def service_name(service: str, region: str, partition: str) -> str:
    """The name of an endpoint's service: ``com.amazonaws.us-west-2.ssm``."""
    prefix = "cn.com.amazonaws" if partition == "aws-cn" and service in _CHINESE else "com.amazonaws"
    return f"{prefix}.{region}.{service}"
