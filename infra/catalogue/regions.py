"""AWS regions, their zones, and which zones offer an instance type.

Source: ``ec2 describe-availability-zones`` and ``describe-instance-type-offerings`` in ``regions.json`` and
``offers.json``. In most regions AWS assigns zone letters differently in each account
(https://docs.aws.amazon.com/global-infrastructure/latest/regions/az-ids.html): the *letters* that offer a
type are those of the account that was queried, so a zone that seems to lack one gives a warning, not an
error. A zone's id, such as ``usw2-az1``, is the same zone in every account.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from infra.catalogue.tables import table
from infra.nearest import nearest

PROVIDER: Final = "5.100"
"""The minor release that our modules pin (in their ``versions.tf``)."""
UNKNOWN_TO_THE_PROVIDER: Final = frozenset({"ap-southeast-6"})
"""Regions added after this release: the provider refuses them in a zone's VPCs and does not find them."""

WITHOUT_NAT_GATEWAYS: Final = frozenset({"apne1-az3"})
"""Ids of zones in which AWS cannot create NAT gateways: NotAvailableInZone, for zones that can hardly be
expanded (VPC User Guide, "Troubleshoot NAT gateways", Availability Zone is unsupported). AWS does not
list them, and no API call returns them; Tokyo's is known from reports
(https://github.com/sysdiglabs/terraform-aws-secure-for-cloud/pull/52)."""


@dataclass(frozen=True, slots=True)
class Region:
    """An AWS region."""

    name: str
    zones: tuple[str, ...]
    """Full names of the availability zones available to any account, sorted."""
    older_zones: tuple[str, ...]
    """Zones that only some, mostly older, accounts have: ``us-west-1c``."""
    partition: str
    """``aws``, ``aws-cn``, ``aws-us-gov``."""
    location: str
    """Display name: ``US West (Oregon)``."""

    def has_zone(self, zone: str) -> bool:
        """Whether it may be one of its zones; which ids exist is only known for an account."""
        if is_zone_id(zone):
            return zone.startswith(f"{zone_id_prefix(self.name)}-az")
        return zone in self.zones or zone in self.older_zones


_ZONE_ID: Final = re.compile(r"[a-z]+\d-az\d{1,2}")
_DIRECTION: Final = {"gov": "g", "northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}


def is_zone_id(zone: str) -> bool:
    """Whether it is an id such as ``usw2-az1``, not a name such as ``us-west-2a``."""
    return _ZONE_ID.fullmatch(zone) is not None


def zone_id_prefix(region: str) -> str:
    """The prefix of the ids of a region's zones: ``usw2`` for us-west-2."""
    area, *words, number = region.split("-")
    return area + "".join(_DIRECTION.get(word, word[0]) for word in words) + number


@cache
def find(name: str) -> Region | None:
    """The region with this name, or None."""
    row = table("regions").get(name)
    if row is None:
        return None
    older = table("retired")["zones"].get(name, "")
    return Region(
        name=name,
        zones=tuple(f"{name}{letter}" for letter in row["zones"]),
        older_zones=tuple(f"{name}{letter}" for letter in older if letter not in row["zones"]),
        partition=row["partition"],
        location=row["location"],
    )


@cache
def names() -> Sequence[str]:
    """Every region that the pinned provider supports, sorted."""
    return tuple(sorted({*table("regions")} - UNKNOWN_TO_THE_PROVIDER))


def suggest_region(name: str) -> str:
    """The region that was probably meant, or the empty string. For a zone's name, its region."""
    word = name.strip().lower().replace("_", "-").replace(" ", "-")
    known = names()
    if word in known:
        return word
    if word[:-1] in known:
        return word[:-1]
    # uswest2, us-west2: the same letters and digits in the same order.
    bare = {one.replace("-", ""): one for one in known}
    return bare.get(word.replace("-", "")) or nearest(word, known)


def suggest_zone(region: str, zone: str) -> str:
    """The zone of the region that was probably meant, or the empty string.

    For a single letter, or another region's zone, the zone with that letter; for a letter that the region
    does not have, its last zone.
    """
    found = find(region)
    if found is None:
        return ""
    letter = re.search(r"[a-z]$", zone.strip().lower())
    if letter is None:
        return found.zones[0]
    meant = f"{region}{letter[0]}"
    return meant if found.has_zone(meant) else found.zones[-1]


@cache
def offered(instance_type: str, region: str) -> tuple[str, ...] | None:
    """Zones of the region that offer the type, by full name, sorted.

    Empty if the region does not offer it; None if unknown, for a region or a type that was never queried.
    For retired types, where they were last offered.
    """
    current = table("offers")
    offers = current["types"].get(instance_type)
    if offers is not None:
        if region not in current["regions"]:
            return None
    else:
        offers = table("retired")["offers"].get(instance_type)
        if offers is None:
            return None
    for one in offers.split():
        if one.rpartition(":")[0] == region:
            return tuple(f"{region}{letter}" for letter in one.rpartition(":")[2])
    return ()
