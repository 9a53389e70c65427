"""Reads an easy-rsa PKI (versions 2 and 3): its CA, certificates and revocations.

``index.txt`` is the database of ``openssl ca`` (see openssl-ca(1)): a line per certificate with six
tab-separated fields: V, R or E; the expiry; the time of revocation, with the reason after a comma; the
serial number; a file name; the subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from infra.drive import x509_builder
from infra.drive.pki.problems import PkiError
from infra.drive.x509_builder import Entry, Signer

_LISTS: Final = ("crl.pem", "crls/crl.pem")


@dataclass(frozen=True, slots=True)
class EasyRsa:
    """The contents of an easy-rsa PKI."""

    authority: x509.Certificate
    key: Signer = field(repr=False)
    certificates: tuple[x509.Certificate, ...]
    """Certificates of servers and clients, valid or not."""
    revoked: tuple[Entry, ...]
    crl_number: int
    """The number of its last revocation list; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class _Line:
    where: str
    revoked: Entry | None
    serial: int
    ends: datetime
    subject: str


def read(folder: Path, passphrase: str, now: datetime) -> EasyRsa:
    """Read an easy-rsa folder, or its ``pki`` folder. Raises ``PkiError``, which says what is missing.

    ``passphrase``: of ``private/ca.key``; ignored if the key is not encrypted.
    """
    if not (folder / "ca.crt").exists() and (folder / "pki" / "ca.crt").exists():
        folder = folder / "pki"
    authority = _certificate(folder / "ca.crt")
    _check_authority(folder / "ca.crt", authority, now)
    key = _key(folder / "private" / "ca.key", passphrase)
    if not x509_builder.fits(key, authority):
        raise PkiError(
            f"{folder / 'private' / 'ca.key'}: not the key of {folder / 'ca.crt'}; put the right one there"
        )
    files = {one.serial_number: one for one in _files(folder)}
    lines = tuple(_lines(folder / "index.txt"))
    certificates = []
    for line in lines:
        certificate = files.get(line.serial)
        alive = line.revoked is None and line.ends > now
        if certificate is None:
            if alive:
                raise PkiError(
                    f"{line.where}: {line.subject} is valid, but its certificate is in no file "
                    "(certs_by_serial, issued); put it back, or revoke it in easy-rsa first"
                )
        elif x509_builder.kind_of(certificate) is not None:
            if _issued_by(certificate, authority):
                certificates.append(certificate)
        elif alive and _is_authority(certificate):
            raise PkiError(
                f"{line.where}: {line.subject} is an authority of its own, and what it issued is "
                "not known here; revoke it in easy-rsa first"
            )
    return EasyRsa(
        authority,
        key,
        tuple(certificates),
        tuple(line.revoked for line in lines if line.revoked),
        _crl_number(folder),
    )


def _check_authority(path: Path, authority: x509.Certificate, now: datetime) -> None:
    if not _issued_by(authority, authority):
        raise PkiError(
            f"{path}: not a root: {authority.issuer.rfc4514_string()} issued it; import that one instead"
        )
    if authority.not_valid_after_utc <= now:
        raise PkiError(
            f"{path}: ended on {authority.not_valid_after_utc:%Y-%m-%d}, so its profiles work no longer; "
            "make a new PKI instead"
        )
    if not x509_builder.may_have_authorities_below(authority):
        raise PkiError(
            f"{path}: this authority may have no other below it (its path length is 0, or it is no "
            "authority), so it can't become the root of an intermediate; make a new PKI instead"
        )


def _lines(path: Path) -> Iterator[_Line]:
    for number, text in enumerate(_read(path).decode("utf-8", "replace").splitlines(), start=1):
        where = f"{path}:{number}"
        fields = text.split("\t")
        if not text.strip():
            continue
        try:
            state, ends, revoked, serial, _, subject = fields
            entry = None
            if state == "R":
                when, _, reason = revoked.partition(",")
                entry = Entry(
                    int(serial, 16), _time(when), reason if reason in x509_builder.REASONS else "unspecified"
                )
            elif state not in {"V", "E"}:
                raise ValueError(state)  # noqa: TRY301 - everything wrong with a line is reported in one way
            yield _Line(where, entry, int(serial, 16), _time(ends), subject)
        except ValueError:
            raise PkiError(
                f"{where}: not a line of an easy-rsa index (state, end, revocation, serial number, file and "
                "subject, with tabs between them); fix it"
            ) from None


def _time(text: str) -> datetime:
    """UTCTime or GeneralizedTime (RFC 5280, 4.1.2.5)."""
    pattern = "%y%m%d%H%M%SZ" if len(text) == len("YYMMDDHHMMSSZ") else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text, pattern).replace(tzinfo=UTC)


def _files(folder: Path) -> Iterator[x509.Certificate]:
    """The certificates in all folders that versions of easy-rsa use."""
    for path in sorted([*folder.rglob("*.crt"), *folder.rglob("*.pem")]):
        data = _read(path)
        if b"-----BEGIN CERTIFICATE-----" in data:
            try:
                yield x509.load_pem_x509_certificate(data)
            except ValueError:
                raise PkiError(f"{path}: not a certificate; put it back from a backup") from None


def _crl_number(folder: Path) -> int:
    for name in _LISTS:
        if (folder / name).exists():
            try:
                return x509_builder.number_of(x509.load_pem_x509_crl(_read(folder / name)))
            except ValueError:
                raise PkiError(
                    f"{folder / name}: not a revocation list; make it again: easyrsa gen-crl"
                ) from None
    return 0


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError:
        raise PkiError(f"{path}: not a certificate; put it back from a backup") from None


def _key(path: Path, passphrase: str) -> Signer:
    data = _read(path)
    for password in (None, passphrase.encode() or None):
        try:
            return x509_builder.signer(load_pem_private_key(data, password))
        except TypeError:  # encrypted, but no password given
            continue
        except ValueError:
            break
    raise PkiError(f"{path}: the passphrase does not open it, or it is not a key; check the passphrase")


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise PkiError(
            f"{path}: can't be read ({problem.strerror}); give the folder of an easy-rsa PKI, with ca.crt, "
            "index.txt and private/ca.key"
        ) from None
