"""Service quotas of an AWS account that a cluster may reach.

Running instances are counted in vCPUs, by kind of family and by market
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html and, of the same guide,
``using-spot-limits.html``); codes are those of ``aws service-quotas list-service-quotas``. What a VPC may
have is in the VPC User Guide, "Amazon VPC quotas", and its VPN in the Site-to-Site VPN User Guide, "Quotas".
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
    """What a spec says: ``on-demand-p``, ``vpcs``."""
    title: str
    """What AWS calls it."""
    service: str
    """AWS's code of the service: ``ec2``, ``vpc``."""
    code: str
    """AWS's code of the quota: ``L-417A185B``."""
    default: int
    """What a new account has."""
    families: tuple[str, ...] = ()
    """For vCPU quotas, the letters of the instance families that count: ``p``; ``g``, ``gr``, ``vt``."""

    @property
    def named(self) -> str:
        """What to ask AWS for: ``VPCs per Region (L-F678F1CE)``."""
        return f"{self.title} ({self.code})"

    @property
    def vcpus(self) -> bool:
        """Whether it counts vCPUs of instances."""
        return bool(self.families)


@cache
def find(name: str) -> Quota | None:
    """The quota of that name, or None."""
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
    """The quota of a name that this code states."""
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
    """The vCPU quota that an instance counts against; None where there is none (Macs run on hosts)."""
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
