"""Names and tags of all resources."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from infra.catalogue.limits import NAMES
from infra.model.kubernetes import Taint
from infra.model.places import Tier

_AUTOSCALER: Final = "k8s.io/cluster-autoscaler"
"""The prefix of tags by which the Kubernetes autoscaler discovers a group and its nodes."""


def aws_name(limit: int, *parts: str) -> str:
    """``<env>-<site>-<thing>``, shortened to ``limit`` characters with a stable hash of the whole name.

    Two different names do not become equal by shortening: eight hex digits of the SHA-256 distinguish them.
    """
    whole = "-".join(part for part in parts if part)
    if len(whole) <= limit:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: limit - 9].rstrip('-')}-{digest}"


def named(kind: str, *parts: str) -> str:
    """The name, shortened to AWS's limit for this kind (``catalogue.limits.NAMES``)."""
    return aws_name(NAMES[kind].characters, *parts)


def group_name(environment: str, site: str, pool: str) -> str:
    """A pool's Auto Scaling group at a site."""
    return named("auto-scaling-group", environment, site, pool)


def file_system_name(environment: str, site: str, name: str) -> str:
    """A file system at a site, in EFS's tag ``Name``."""
    return named("tag-value", environment, site, name)


def link_name(site: str, peer: str, number: int) -> str:
    """``rack-a-us-west-2``; a site's second public address adds ``-2``."""
    return f"{site}-{peer}" if number == 1 else f"{site}-{peer}-{number}"


def tunnel_secret(link: str, number: int) -> str:
    """The secret that holds a tunnel's pre-shared key."""
    return f"vpn/{link}/{number}"


def bucket_name(environment: str, bucket: str, *owner: str) -> str:
    """A globally unique bucket name (S3 User Guide: 3 to 63 characters).

    The hash of the owner (cluster, domain, account) distinguishes labs that use the same names.
    """
    digest = hashlib.sha256("/".join(owner).encode()).hexdigest()[:8]
    return named("s3-bucket", environment, bucket, digest)


def identifier(name: str) -> str:
    """A name as an identifier for Terraform and Jinja: ``us-west-2`` → ``us_west_2``."""
    return name.replace("-", "_").replace(".", "_")


def subnet_name(tier: Tier, zone: str) -> str:
    """``private-us-west-2a``."""
    return f"{tier}-{zone}"


def common_tags(cluster: str, environment: str, owner: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Tags on all resources; ours override the spec's."""
    ours = {"cluster": cluster, "environment": environment, "managed-by": "causeway"}
    return dict(sorted({**tags, **({"owner": owner} if owner else {}), **ours}.items()))


def thing_tags(site: str, role: str, **more: str) -> dict[str, str]:
    """Tags of a single resource, besides the common ones."""
    return {"site": site, "role": role, **more}


def label_tag(key: str) -> str:
    """The tag of an Auto Scaling group with the value of a node label."""
    return f"{_AUTOSCALER}/node-template/label/{key}"


def taint_tag(key: str) -> str:
    """The tag of an Auto Scaling group with the value of a node taint."""
    return f"{_AUTOSCALER}/node-template/taint/{key}"


def autoscaler_tags(
    cluster: str, labels: Mapping[str, str], taints: Iterable[Taint], resources: Mapping[str, str]
) -> dict[str, str]:
    """The tags with which an autoscaler scales a group from zero."""
    tags = {
        f"{_AUTOSCALER}/enabled": "true",
        f"{_AUTOSCALER}/{cluster}": "owned",
        **{label_tag(key): value for key, value in labels.items()},
        **{taint_tag(each.key): f"{each.value}:{each.effect}" for each in taints},
        **{f"{_AUTOSCALER}/node-template/resources/{key}": value for key, value in resources.items()},
    }
    return dict(sorted(tags.items()))
