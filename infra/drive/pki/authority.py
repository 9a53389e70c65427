"""Creates the CAs, and performs the operations that need the root's key."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_der_private_key

from infra.drive import x509_builder
from infra.drive.pki import chunks, encryption, records, tls_crypt
from infra.drive.pki.problems import PkiError
from infra.drive.pki.records import Intermediate, Root
from infra.drive.pki.register import Archive
from infra.drive.secrets.store import LARGEST, Store
from infra.drive.x509_builder import Entry, Signer

ROOT_DAYS: Final = 3652
INTERMEDIATE_DAYS: Final = 1096

_PURPOSE: Final = "root key"
_TRIES: Final = 20


def new_root(certificate: x509.Certificate, key: Signer, passphrase: str, now: datetime) -> Root:
    """A new root with its encrypted key, not stored yet."""
    return Root(
        id=secrets.token_hex(8),
        certificate=certificate,
        sealed=encryption.seal(x509_builder.key_der(key), passphrase, _PURPOSE),
        tls_crypt=tls_crypt.server_key(),
        made=now,
    )


def new_intermediate(root: Root, root_key: Signer, now: datetime) -> dict[str, str]:
    """Name and text of the record of a new intermediate.

    Its common name is unique, as revocation lists are selected by the name of their issuer.
    """
    key = x509_builder.new_key()
    base = x509_builder.common_name(root.certificate).removesuffix(" root")
    name = f"{base[:40]} issuing {secrets.token_hex(4)}"
    certificate = x509_builder.intermediate(key, name, root.certificate, root_key, now, INTERMEDIATE_DAYS)
    made = Intermediate(certificate, x509_builder.key_pem(key), now)
    return {
        records.intermediate_name(root.id, certificate.serial_number): records.intermediate_text(made),
    }


def new_root_crl(
    root: Root, root_key: Signer, revoked: tuple[Entry, ...], number: int, now: datetime
) -> tuple[str, str]:
    """Name and text of the root's revocation list. It is valid as long as the root: renewing it needs the
    passphrase, and it changes only when a certificate that the root issued is revoked."""
    crl = x509_builder.revocation_list(
        root.certificate,
        root_key,
        revoked,
        number,
        now - x509_builder.BACKDATE,
        root.certificate.not_valid_after_utc,
    )
    return records.root_crl_name(root.id, number), x509_builder.pem(crl)


def commit(store: Store, root: Root, parts: Mapping[str, str]) -> None:
    """Store all records of a new PKI, the root's last, which makes them valid."""
    text = records.root_text(root)
    if len(text.encode()) > LARGEST:
        raise PkiError(
            f"the root's certificate and key take {len(text.encode()):,} bytes, and a secret has at "
            f"most {LARGEST:,}: the key is too large"
        )
    store.add(parts)
    # If AWS's response was lost, the retried call finds our own record.
    if not store.add({records.ROOT: text}) and store.get(records.ROOT) != text:
        for name in parts:
            store.delete(name)
        raise PkiError(f"{store}: somebody else has just made a PKI here; use that one")
    sweep(store, root)


def sweep(store: Store, root: Root) -> None:
    """Delete records that belong to no PKI, left by interrupted attempts or a replaced PKI."""
    for name in store.names("pki/"):
        if name != records.ROOT and not name.startswith(f"pki/{root.id}/"):
            store.delete(name)


def root_key(store: Store, root: Root, passphrase: str) -> Signer:
    """The root's key. Raises ``PkiError`` for a wrong passphrase."""
    where = f"{store}: {records.ROOT}"
    data = encryption.unseal(root.sealed, passphrase, _PURPOSE, where)
    try:
        key = x509_builder.signer(load_der_private_key(data, None))
    except (ValueError, TypeError):
        raise PkiError(f"{where}: holds no key; put it back from a backup with replace") from None
    if not x509_builder.fits(key, root.certificate):
        raise PkiError(f"{where}: holds another's key; put it back from a backup with replace")
    return key


def revoke_by_root(
    store: Store, archive: Archive, reasons: Mapping[int, str], passphrase: str, now: datetime
) -> None:
    """Add certificates that the root issued to its revocation list: serial number → reason.

    The list's number is part of its name. If two engineers add the next one concurrently, one is refused,
    reads the other's and continues from there, so that no revocation is lost.
    """
    for _ in range(_TRIES):
        register = archive.read()
        if register is None:
            break
        listed = x509_builder.entries_of(register.root_crl)
        known = {entry.serial for entry in listed}
        fresh = [Entry(serial, now, reason) for serial, reason in reasons.items() if serial not in known]
        key = root_key(store, register.root, passphrase)
        if not fresh:
            return
        number = x509_builder.number_of(register.root_crl) + 1
        name, text = new_root_crl(register.root, key, (*listed, *fresh), number, now)
        if chunks.add(store, name, text):
            return
    raise PkiError(f"{store}: others keep changing the root's revocation list; run this again")
