"""Issues certificates for servers and clients, as records that are not stored yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from infra.drive import x509_builder
from infra.drive.pki import records, tls_crypt
from infra.drive.pki.problems import PkiError
from infra.drive.pki.records import Certificate, Intermediate
from infra.drive.pki.register import Register
from infra.drive.x509_builder import PublicKey

CLIENT_DAYS: Final = 365
SERVER_DAYS: Final = 397
LONGEST_DAYS: Final = 825
"""The longest lifetime that Apple's systems accept for a server certificate, and long enough for a laptop."""

SOON: Final = timedelta(days=30)
"""A certificate that expires sooner is reissued on request, and reported."""


def check_days(days: int) -> None:
    if not 1 <= days <= LONGEST_DAYS:
        raise PkiError(f"a certificate is valid for 1 to {LONGEST_DAYS} days, not {days}")


def lasting(certificates: Iterable[Certificate], now: datetime, days: int) -> Certificate | None:
    """The certificate that can be reused: valid, issued here, and not expiring soon."""
    enough = min(SOON, timedelta(days=days) / 2)
    usable = [
        one
        for one in certificates
        if (one.key or one.requested) and one.valid(now) and one.not_after - now > enough
    ]
    return max(
        usable,
        key=lambda one: (one.replaced_by is None, one.not_after, one.issued, one.serial),
        default=None,
    )


def issue_client(
    register: Register,
    common: str,
    user: str,
    device: str,
    days: int,
    now: datetime,
    *,
    replaces: int | None = None,
    public: PublicKey | None = None,
) -> tuple[str, str]:
    """Name and text of the record. ``public``: the key of a signing request; without it, a key is
    generated."""
    issuing = _issuing(register, now)
    own = x509_builder.new_key() if public is None else None
    key = own.public_key() if own else public
    assert key is not None
    subject, life = x509_builder.subject_of(common), timedelta(days=days)
    certificate = x509_builder.end_entity(
        key, "client", subject, (), issuing.certificate, records.signing_key(issuing.key), now, life
    )
    mark = f"{common} {records.digits(certificate.serial_number)}"
    text = records.certificate_text(
        certificate,
        user=user,
        device=device,
        issued=now,
        replaces=replaces,
        key=x509_builder.key_pem(own) if own else "",
        tls_crypt=tls_crypt.client_key(register.root.tls_crypt, mark),
    )
    return records.certificate_name(register.root.id, certificate.serial_number), text


def issue_server(
    register: Register,
    common: str,
    site: str,
    names: Sequence[str],
    days: int,
    now: datetime,
    *,
    replaces: int | None = None,
) -> tuple[str, str]:
    """Name and text of the record."""
    issuing = _issuing(register, now)
    key = x509_builder.new_key()
    certificate = x509_builder.end_entity(
        key.public_key(),
        "server",
        x509_builder.subject_of(common),
        names,
        issuing.certificate,
        records.signing_key(issuing.key),
        now,
        timedelta(days=days),
    )
    text = records.certificate_text(
        certificate, site=site, issued=now, replaces=replaces, key=x509_builder.key_pem(key)
    )
    return records.certificate_name(register.root.id, certificate.serial_number), text


def _issuing(register: Register, now: datetime) -> Intermediate:
    newest = register.intermediates[0].certificate
    if newest.not_valid_after_utc - now <= SOON:
        raise PkiError(
            f"the issuing authority {x509_builder.common_name(newest)} "
            f"ends {newest.not_valid_after_utc:%Y-%m-%d}, "
            "too soon to issue anything; renew it with the root's passphrase"
        )
    return register.intermediates[0]
