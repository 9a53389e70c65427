"""Service quotas of an AWS account that a cluster may reach.

Running instances are counted in vCPUs, by family and market
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html and, in the same guide,
``using-spot-limits.html``); codes are those of ``aws service-quotas list-service-quotas``. Quotas of a VPC
are in the VPC User Guide, "Amazon VPC quotas", those of its VPN in the Site-to-Site VPN User Guide,
"Quotas".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from infra.catalogue.tables import table
from infra.nearest import nearest

Market: TypeAlias = Literal["on-demand", "spot"]


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of one account in one region."""

    name: str
    """The name in specs: ``on-demand-p``, ``vpcs``."""
    title: str
    """AWS's name."""
    service: str
    """AWS's service code: ``ec2``, ``vpc``."""
    code: str
    """AWS's quota code: ``L-417A185B``."""
    default: int
    """The value for a new account."""
    families: tuple[str, ...] = ()
    """For vCPU quotas, the letters of the instance families that it covers: ``p``; ``g``, ``gr``, ``vt``."""

    @property
    def named(self) -> str:
        """The name for a request to AWS: ``VPCs per Region (L-F678F1CE)``."""
        return f"{self.title} ({self.code})"

    @property
    def vcpus(self) -> bool:
        """Whether it counts vCPUs of instances."""
        return bool(self.families)


@cache
def find(name: str) -> Quota | None:
    """The quota with this name, or None."""
    row = table("quotas").get(name)
    if row is None:
        return None
    return Quota(
        name=name,
        title=row["title"],
        service=row["service"],
        code=row["code"],
        default=row["default"],
        families=tuple(row.get("families", ())),
    )


def known(name: str) -> Quota:
    """The quota for a name used in our code, which must exist."""
    found = find(name)
    assert found is not None, name
    return found


@cache
def names() -> Sequence[str]:
    """Every quota, sorted."""
    return tuple(sorted(table("quotas")))


def suggest(name: str) -> str:
    """The quota that was probably meant, or the empty string."""
    word = name.strip().lower().replace("_", "-").replace(" ", "-")
    return word if word in names() else nearest(word, names())


@cache
def quota_for(instance_type: str, market: Market) -> Quota | None:
    """The vCPU quota that applies to an instance; None if there is none (Macs run on hosts)."""
    letters = re.match(r"[a-z]+", instance_type)
    if letters is None or instance_type.startswith("mac"):
        return None
    # im4gn, is4gen: storage types of the I family, recognized by their first letter
    word = {"im": "i", "is": "i"}.get(letters[0], letters[0])
    for name in names():
        quota = find(name)
        if quota and name.startswith(f"{market}-") and word in quota.families:
            return quota
    return None
