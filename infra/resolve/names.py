"""Names and tags of everything we create: decided here and nowhere else."""

from __future__ import annotations

import hashlib

from infra.model.places import Tier


def aws_name(limit: int, *parts: str) -> str:
    """``<env>-<site>-<thing>``, cut to ``limit`` characters with a hash of the whole that never changes.

    Two different names never become one by being cut: eight hex digits of the SHA-256 tell them apart.
    """
    whole = "-".join(part for part in parts if part)
    if len(whole) <= limit:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: limit - 9].rstrip('-')}-{digest}"


def bucket_name(environment: str, bucket: str, *owner: str) -> str:
    """A bucket's name, global among all accounts (S3 User Guide: 3 to 63 characters).

    The hash of the owner (cluster, domain, account) keeps two labs with the same taste apart.
    """
    digest = hashlib.sha256("/".join(owner).encode()).hexdigest()[:8]
    return aws_name(63, environment, bucket, digest)


def identifier(name: str) -> str:
    """A name as Terraform and Jinja can use it: ``us-west-2`` → ``us_west_2``."""
    return name.replace("-", "_").replace(".", "_")


def subnet_name(tier: Tier, zone: str) -> str:
    """``private-us-west-2a``."""
    return f"{tier}-{zone}"


def common_tags(cluster: str, environment: str, owner: str, tags: dict[str, str]) -> dict[str, str]:
    """Tags on everything; the spec's own first, so that it can't change ours."""
    ours = {"cluster": cluster, "environment": environment, "managed-by": "causeway"}
    return dict(sorted({**tags, **({"owner": owner} if owner else {}), **ours}.items()))


def thing_tags(site: str, role: str, **more: str) -> dict[str, str]:
    """Tags that tell one thing from another, beside the common ones."""
    return {"site": site, "role": role, **more}
