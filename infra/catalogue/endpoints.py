"""VPC endpoints: which services have them, and under which names AWS knows those.

A gateway endpoint is a route and costs nothing; an interface endpoint is an address in each zone, paid by the
hour (AWS PrivateLink Guide, "AWS services that integrate with AWS PrivateLink").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

Word: TypeAlias = Literal[
    "s3", "autoscaling", "ec2", "ec2messages", "ecr", "elasticfilesystem", "elasticloadbalancing", "kms",
    "logs", "monitoring", "secretsmanager", "ssm", "ssmmessages", "sts",
]  # fmt: skip
"""What a spec may name."""

WORDS: Final[tuple[Word, ...]] = get_args(Word)

GATEWAYS: Final = frozenset({"s3"})
"""Services whose endpoint is a route."""

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"ecr": ("ecr.api", "ecr.dkr")}
"""A registry's API and the registry itself have an endpoint each (ECR User Guide, "Amazon ECR interface VPC
endpoints")."""

_CHINESE: Final = frozenset(
    {"autoscaling", "ec2", "ecr.api", "ecr.dkr", "elasticfilesystem", "monitoring", "sts"}
)
"""Services whose name begins with ``cn.`` in China; those of the others are as everywhere. There is no rule:
``ec2 describe-vpc-endpoint-services`` lists them."""


def services(word: Word) -> tuple[str, ...]:
    """The services that a word of the spec stands for: ``("ecr.api", "ecr.dkr")``."""
    return _PARTS.get(word, (word,))


def service_name(service: str, region: str, partition: str) -> str:
    """The name of an endpoint's service: ``com.amazonaws.us-west-2.ssm``."""
    prefix = "cn.com.amazonaws" if partition == "aws-cn" and service in _CHINESE else "com.amazonaws"
    return f"{prefix}.{region}.{service}"
