"""Certificates that expire soon."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from infra.drive import x509_builder
from infra.drive.pki import records
from infra.drive.pki.issuing import CLIENT_DAYS, SOON
from infra.drive.pki.records import Certificate
from infra.drive.pki.register import Register

_AHEAD: Final = {
    "root": timedelta(days=365),
    "intermediate": SOON + timedelta(days=CLIENT_DAYS),
    "server": SOON,
    "client": SOON,
}
"""How long before its expiry a certificate is reported. A new root requires new profiles for all users. A
certificate never outlives the intermediate that issued it, so an intermediate is renewed while it can
still issue for a client's full lifetime."""


@dataclass(frozen=True, slots=True)
class Due:
    """A certificate that expires soon, or has expired within the last 30 days."""

    kind: Literal["root", "intermediate", "server", "client"]
    name: str
    """Its common name."""
    site: str
    """The site of a server; empty for others, which have unique names."""
    id: str
    """Its serial number in hexadecimal."""
    ends: datetime


def due(register: Register, now: datetime) -> tuple[Due, ...]:
    """Certificates that expire soon and have no successor, the earliest first."""
    root, issuing = register.root.certificate, register.intermediates[0].certificate
    newest: dict[tuple[str, str, str], Certificate] = {}
    for one in sorted(register.certificates, key=lambda each: each.not_after):
        if one.revoked is None and one.not_after > now - SOON:
            newest[one.kind, one.name, one.site] = one
    found = [
        Due(
            "root",
            x509_builder.common_name(root),
            "",
            records.digits(root.serial_number),
            root.not_valid_after_utc,
        ),
        Due(
            "intermediate",
            x509_builder.common_name(issuing),
            "",
            records.digits(issuing.serial_number),
            issuing.not_valid_after_utc,
        ),
        *(Due(one.kind, one.name, one.site, one.id, one.not_after) for one in newest.values()),
    ]
    soon = [each for each in found if each.ends - now <= _AHEAD[each.kind]]
    return tuple(sorted(soon, key=lambda each: (each.ends, each.kind, each.name, each.site)))
