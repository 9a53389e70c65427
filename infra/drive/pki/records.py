"""What the PKI keeps, and its form in the store: JSON texts that are written once and never changed.

=============================  =====================================================================
name                           what
=============================  =====================================================================
``pki/root``                   the root, its key sealed with a passphrase, the servers' tls-crypt-v2
                               key, and ``<id>``. There is a PKI when this is there
``pki/<id>/intermediates/…``   an issuing authority with its key
``pki/<id>/certificates/…``    a server's or client's certificate, with its keys where we made them
``pki/<id>/revocations/…``     that a certificate of an intermediate was revoked
``pki/<id>/root-crl/…``        the root's revocation list; the one with the largest number holds
=============================  =====================================================================

The last part is a serial number, or the list's number. To issue is to add one record, and so is to revoke;
a store adds in one piece, and of two who add the same one wins. So there is nothing that a crash could leave
half-done, nothing that two engineers could overwrite, and no index beside the records that could lie. What
a certificate says is read from it and kept nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from infra.drive import x509_builder
from infra.drive.pki import tls_crypt
from infra.drive.secrets.store import PKI_ROOT
from infra.drive.x509_builder import Entry, Kind, PublicKey, Signer
from infra.errors import newer

ROOT: Final = PKI_ROOT
_VERSION: Final = 1


class DamagedError(Exception):
    """A record is not in the written format. Says what is wrong; the caller adds its name."""


@dataclass(frozen=True, slots=True)
class Root:
    """The root CA; its key is encrypted with the passphrase."""

    id: str
    """Part of the names of all its records: random, so that attempts to create a PKI never mix."""
    certificate: x509.Certificate
    sealed: Mapping[str, Any] = field(repr=False)
    tls_crypt: str = field(repr=False)
    """The servers' tls-crypt-v2 key, PEM."""
    made: datetime


@dataclass(frozen=True, slots=True)
class Intermediate:
    """An issuing CA."""

    certificate: x509.Certificate
    key: str = field(repr=False)
    """PEM."""
    made: datetime


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of a server or client, and its records. Times are UTC, to the second."""

    serial: int
    kind: Kind
    name: str
    """The common name: ``ada``, ``ada@phone``, ``vpn.research.internal``."""
    user: str
    """Empty for a server."""
    device: str
    """Empty for a user's first."""
    site: str
    """Empty for a client."""
    names: tuple[str, ...]
    """A server's DNS names and addresses."""
    issued: datetime
    not_before: datetime
    not_after: datetime
    issuer: int
    """The serial number of the authority's certificate."""
    replaces: int | None
    replaced_by: int | None
    revoked: datetime | None
    reason: str
    """Why it was revoked, as named in RFC 5280; empty if it was not."""
    certificate: str
    """PEM."""
    chain: str
    """PEM: the certificate and the intermediate that issued it, as sent to a peer."""
    key: str = field(repr=False)
    """PKCS#8 PEM, unencrypted; empty for imported certificates and for signing requests, whose key we do not
    have."""
    tls_crypt: str = field(repr=False)
    """A client's tls-crypt-v2 key, PEM; empty for servers and imported certificates."""

    @property
    def id(self) -> str:
        """The serial number in hexadecimal, as ``openssl x509 -serial`` writes it."""
        return digits(self.serial)

    @property
    def requested(self) -> bool:
        """Whether it was issued for a signing request: the key is only on the laptop."""
        return bool(self.tls_crypt and not self.key)

    @property
    def public(self) -> PublicKey:
        """Its public key."""
        return x509_builder.public_key_of(x509.load_pem_x509_certificate(self.certificate.encode()))

    def valid(self, now: datetime) -> bool:
        """Whether it is within its validity period and not revoked."""
        return self.revoked is None and self.not_before <= now <= self.not_after


@dataclass(frozen=True, slots=True)
class Revocation:
    """The revocation of a certificate. Contains all that a revocation list needs, so that a certificate
    whose record is lost stays revoked."""

    entry: Entry
    issuer: int


def digits(serial: int) -> str:
    """A serial number for display: hexadecimal, whole bytes."""
    return serial.to_bytes(max(1, (serial.bit_length() + 7) // 8), "big").hex().upper()


def serial_of(name: str) -> int:
    """The serial number at the end of a record's name."""
    return int(name.rpartition("/")[2], 16)


def hexed(serial: int) -> str:
    """A serial number as the last part of a name."""
    return f"{serial:040x}"


def intermediate_name(register: str, serial: int) -> str:
    return f"pki/{register}/intermediates/{hexed(serial)}"


def certificate_name(register: str, serial: int) -> str:
    return f"pki/{register}/certificates/{hexed(serial)}"


def revocation_name(register: str, serial: int) -> str:
    return f"pki/{register}/revocations/{hexed(serial)}"


def root_crl_name(register: str, number: int) -> str:
    return f"pki/{register}/root-crl/{number:020d}"


def root_text(root: Root) -> str:
    return _text(
        id=root.id,
        made=_time(root.made),
        certificate=x509_builder.pem(root.certificate),
        key=dict(root.sealed),
        tls_crypt_v2=root.tls_crypt,
    )


def root_of(text: str) -> Root:
    match _json(text):
        case {
            "id": str(register),
            "made": str(made),
            "certificate": str(certificate),
            "key": dict(sealed),
            "tls_crypt_v2": str(server_key),
        } if register.isalnum():
            _sound(lambda: tls_crypt.check_server_key(server_key), "its tls-crypt-v2 key is not valid")
            return Root(register, _certificate(certificate), sealed, server_key, _datetime(made))
    raise DamagedError("not in the form that was written")


def intermediate_text(intermediate: Intermediate) -> str:
    return _text(
        made=_time(intermediate.made),
        certificate=x509_builder.pem(intermediate.certificate),
        key=intermediate.key,
    )


def intermediate_of(text: str, serial: str, root: Root) -> Intermediate:
    match _json(text):
        case {"made": str(made), "certificate": str(pem), "key": str(key)}:
            certificate = _certificate(pem)
            _check(certificate, serial, root.certificate)
            if not x509_builder.fits(signing_key(key), certificate):
                raise DamagedError("its key belongs to another certificate")
            return Intermediate(certificate, key, _datetime(made))
    raise DamagedError("not in the form that was written")


def certificate_text(
    certificate: x509.Certificate,
    *,
    user: str = "",
    device: str = "",
    site: str = "",
    issued: datetime,
    replaces: int | None = None,
    key: str = "",
    tls_crypt: str = "",
) -> str:
    return _text(
        user=user,
        device=device,
        site=site,
        issued=_time(issued),
        replaces=None if replaces is None else hexed(replaces),
        certificate=x509_builder.pem(certificate),
        key=key,
        tls_crypt_v2=tls_crypt,
    )


def imported_text(certificate: x509.Certificate, now: datetime) -> str:
    """The record of a certificate issued by another program."""
    user, device = _holder(certificate)
    issued = min(certificate.not_valid_before_utc, now)
    return certificate_text(certificate, user=user, device=device, issued=issued)


def _holder(certificate: x509.Certificate) -> tuple[str, str]:
    """User and device of a client's certificate, from its common name; empty for a server's."""
    if x509_builder.kind_of(certificate) != "client":
        return "", ""
    user, _, device = x509_builder.common_name(certificate).partition("@")
    return user, device


def certificate_of(
    text: str,
    serial: str,
    root: Root,
    intermediates: Mapping[bytes, Intermediate],
    revoked: Mapping[int, Entry],
) -> Certificate:
    """Parse a record. ``intermediates`` by their encoded subject; ``revoked`` by serial number."""
    match _json(text):
        case {
            "user": str(user),
            "device": str(device),
            "site": str(site),
            "issued": str(issued),
            "replaces": (str() | None) as replaces,
            "certificate": str(pem),
            "key": str(key),
            "tls_crypt_v2": str(client_key),
        }:
            certificate = _certificate(pem)
            issuer = intermediates.get(certificate.issuer.public_bytes())
            above = issuer.certificate if issuer else root.certificate
            _check(certificate, serial, above)
            kind = x509_builder.kind_of(certificate)
            if kind is None:
                raise DamagedError("neither a client's certificate nor a server's")
            if key and not x509_builder.fits(signing_key(key), certificate):
                raise DamagedError("its key belongs to another certificate")
            if client_key:
                _sound(
                    lambda: tls_crypt.metadata(root.tls_crypt, client_key),
                    "the servers' key does not open its tls-crypt-v2 key",
                )
            entry = revoked.get(certificate.serial_number)
            if not user:
                # A certificate for both server and client may have been imported without a user.
                user, device = _holder(certificate)
            return Certificate(
                serial=certificate.serial_number,
                kind=kind,
                name=x509_builder.common_name(certificate),
                user=user,
                device=device,
                site=site,
                names=x509_builder.names_of(certificate),
                issued=_datetime(issued),
                not_before=certificate.not_valid_before_utc,
                not_after=certificate.not_valid_after_utc,
                issuer=above.serial_number,
                replaces=None if replaces is None else _number(replaces),
                replaced_by=None,
                revoked=entry.when if entry else None,
                reason=entry.reason if entry else "",
                certificate=pem,
                chain=pem + (x509_builder.pem(issuer.certificate) if issuer else ""),
                key=key,
                tls_crypt=client_key,
            )
    raise DamagedError("not in the form that was written")


def revocation_text(revocation: Revocation) -> str:
    entry = revocation.entry
    return _text(issuer=hexed(revocation.issuer), when=_time(entry.when), reason=entry.reason)


def revocation_of(text: str, serial: str) -> Revocation:
    match _json(text):
        case {"issuer": str(issuer), "when": str(when), "reason": str(reason)} if (
            reason in x509_builder.REASONS
        ):
            return Revocation(Entry(_number(serial), _datetime(when), reason), _number(issuer))
    raise DamagedError("not in the form that was written")


def root_crl_of(text: str, number: str, root: Root) -> x509.CertificateRevocationList:
    try:
        crl = x509.load_pem_x509_crl(text.encode())
        if not crl.is_signature_valid(root.certificate.public_key()):  # type: ignore[arg-type]
            raise DamagedError("the root did not sign it")
    except ValueError:
        raise DamagedError("not a revocation list") from None
    if x509_builder.number_of(crl) != _number(number, base=10):
        raise DamagedError("its number differs")
    return crl


def signing_key(pem: str) -> Signer:
    try:
        return x509_builder.signer(serialization.load_pem_private_key(pem.encode(), None))
    except (ValueError, TypeError):
        raise DamagedError("its key can't be read") from None


def _check(certificate: x509.Certificate, serial: str, issuer: x509.Certificate) -> None:
    if hexed(certificate.serial_number) != serial:
        raise DamagedError("its certificate is not the one that its name says")
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        raise DamagedError("no authority of this PKI issued its certificate") from None


def _text(**fields: Any) -> str:
    return json.dumps({"version": _VERSION, **fields}, separators=(",", ":"))


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise DamagedError("not the JSON that was written") from None
    match found:
        case {"version": 1}:
            return dict(found)
        case {"version": int(version)} if version > _VERSION:
            raise DamagedError(newer(version, _VERSION))
    raise DamagedError("not in the form that was written")


def _certificate(pem: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise DamagedError("its certificate can't be read") from None


def _sound(check: Callable[[], object], what: str) -> None:
    try:
        check()
    except ValueError:
        raise DamagedError(what) from None


def _number(text: str, base: int = 16) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise DamagedError("a number in it is not valid") from None


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _datetime(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise DamagedError("a time in it is not valid") from None
    if moment.tzinfo is None:
        raise DamagedError("a time in it has no zone")
    return moment
