"""What ends soon."""

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
"""How long before its end a certificate is reported. A new root means a new profile for everybody. Nothing
outlives the intermediate that issued it: it is renewed while it can still issue for a client's full time."""


@dataclass(frozen=True, slots=True)
class Due:
    """Something that ends soon, or has ended within the last 30 days."""

    kind: Literal["root", "intermediate", "server", "client"]
    name: str
    """Its common name."""
    site: str
    """Of a server; empty for the others, who have names of their own."""
    id: str
    """Its serial number in hexadecimal."""
    ends: datetime


def due(register: Register, now: datetime) -> tuple[Due, ...]:
    """What ends soon and has no successor, the first to end first."""
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
