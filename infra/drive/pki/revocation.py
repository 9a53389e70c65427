"""The revocation lists of the intermediates, computed from the records on demand.

They are not stored. Time is divided into windows of a third of a list's lifetime, from the intermediate's
first day; a list begins with its window or with the latest revocation, whichever is later. So repeated calls
give the same bytes until something is revoked or two thirds of the lifetime are left: if servers get a list
once per window, none has a list with less than a third of its lifetime left.

The number counts windows and, within them, all revocations ever made: it only increases (RFC 5280, 5.2.3). A
revocation stays listed until the window after its certificate's expiry begins (RFC 5280, 3.3).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from infra.drive import x509_builder
from infra.drive.pki import records
from infra.drive.pki.records import Intermediate
from infra.drive.pki.register import Register

LIFE: Final = timedelta(days=90)
"""The lifetime of a list. OpenVPN refuses all clients once its list has expired."""

_WINDOW: Final = LIFE / 3

SPARE: Final = LIFE - 2 * _WINDOW
"""The minimum remaining lifetime on a server that gets a current list every 30 days."""


def intermediate_crl(
    intermediate: Intermediate, register: Register, now: datetime
) -> x509.CertificateRevocationList:
    """The current list of an intermediate's revoked certificates."""
    certificate = intermediate.certificate
    first = certificate.not_valid_before_utc
    window = max(0, (now - first) // _WINDOW)
    start = first + window * _WINDOW
    ends = {each.serial: each.not_after for each in register.certificates}
    mine = [each.entry for each in register.revocations if each.issuer == certificate.serial_number]
    begins = max([start, *(entry.when for entry in mine)])
    return x509_builder.revocation_list(
        certificate,
        records.signing_key(intermediate.key),
        [entry for entry in mine if ends.get(entry.serial, start) >= start],
        number=(window + 1 << 32) + len(mine),
        begins=begins - x509_builder.BACKDATE,
        ends=begins + LIFE,
    )


def crl_ends(pem: str) -> datetime:
    """When the first of the lists in ``pem`` expires, and with it all access. Raises ``ValueError`` for text
    without lists."""
    end = "-----END X509 CRL-----\n"
    lists = [x509.load_pem_x509_crl((part + end).encode()) for part in pem.split(end)[:-1]]
    if not lists:
        raise ValueError("no revocation list")
    return min(
        each.next_update_utc or datetime.max.replace(tzinfo=each.last_update_utc.tzinfo) for each in lists
    )
