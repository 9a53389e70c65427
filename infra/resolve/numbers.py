"""Spec + lock → the AS number of each site and the id of each user and group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.errors import dotted
from infra.resolve.allocate_numbers import Numbers, Ranges, Wanted, allot
from infra.resolve.lockfile import Lock
from infra.schema import Spec
from infra.schema.sites import PhysicalSite

_PRIVATE_32_BIT: Final = range(4200000000, 4294967295)
"""RFC 6996: the last one, 4294967295, is reserved."""

REGION_ASNS: Final[Ranges] = (range(64512, 65535), _PRIVATE_32_BIT)
"""RFC 6996's private AS numbers, those of 16 bits first; 64512 is AWS's default for a gateway."""
SITE_ASNS: Final[Ranges] = (range(65000, 65535), _PRIVATE_32_BIT)
UIDS: Final[Ranges] = (range(10000, 60000),)
"""Above the ids that useradd(8) allocates first, and below 60000 (Debian Policy, 9.2.2)."""
GIDS: Final[Ranges] = (range(5000, 60000),)


def plan_numbers(spec: Spec, lock: Lock) -> Numbers:
    """The numbers of a whole spec. Numbers in the lock are kept; the others are allocated.

    Numbers that cannot be allocated are in ``problems``. The caller adds positions, as it knows the file.
    """
    return allot(_wanted(spec), lock.numbers)


def asn_key(site: str) -> str:
    """``sites/us-west-2/asn``."""
    return f"sites/{site}/asn"


def gid_key(group: str) -> str:
    """``access/groups/researchers/gid``."""
    return f"access/groups/{group}/gid"


def uid_key(user: str) -> str:
    """``access/users/ada/uid``."""
    return f"access/users/{user}/uid"


def _wanted(spec: Spec) -> Iterator[Wanted]:
    for name, site in spec.sites.items():
        if not isinstance(site, PhysicalSite):
            yield Wanted(asn_key(name), REGION_ASNS, site.asn, dotted(("sites", name, "asn")))
        elif site.gateway is not None:
            path = dotted(("sites", name, "gateway", "asn"))
            # The number of a customer gateway may change: the gateway is replaced (the immutability policy of
            # the field).
            yield Wanted(asn_key(name), SITE_ASNS, site.gateway.asn, path, keep=False)
    for name, group in spec.access.groups.items():
        yield Wanted(gid_key(name), GIDS, group.gid, dotted(("access", "groups", name, "gid")))
    for name, user in spec.access.users.items():
        yield Wanted(uid_key(name), UIDS, user.uid, dotted(("access", "users", name, "uid")))
