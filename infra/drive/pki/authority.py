"""The authorities themselves: how they begin, and what the root's key is needed for later."""

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
    """A root, its key sealed, that no store knows yet."""
    return Root(
        id=secrets.token_hex(8),
        certificate=certificate,
        sealed=encryption.seal(x509_builder.key_der(key), passphrase, _PURPOSE),
        tls_crypt=tls_crypt.server_key(),
        made=now,
    )


def new_intermediate(root: Root, root_key: Signer, now: datetime) -> dict[str, str]:
    """The record of an intermediate, by its name.

    Its common name is one of its own, for a revocation list is found by the name of its issuer.
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
    """Name and text of a revocation list of the root's. It holds as long as the root: renewing it takes the
    passphrase, and it changes only when something that the root itself issued is revoked."""
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
    """Keep all records of a new PKI, and then the one that makes them count."""
    text = records.root_text(root)
    if len(text.encode()) > LARGEST:
        raise PkiError(
            f"the root's certificate and key take {len(text.encode()):,} bytes, and a secret has at "
            f"most {LARGEST:,}: the key is too large"
        )
    store.add(parts)
    # Where AWS's answer got lost, the call is made again and finds our own record there.
    if not store.add({records.ROOT: text}) and store.get(records.ROOT) != text:
        for name in parts:
            store.delete(name)
        raise PkiError(f"{store}: somebody else has just made a PKI here; use that one")
    sweep(store, root)


def sweep(store: Store, root: Root) -> None:
    """Forget what belongs to no PKI: the rest of attempts that were cut off, or of one that gave way."""
    for name in store.names("pki/"):
        if name != records.ROOT and not name.startswith(f"pki/{root.id}/"):
            store.delete(name)


def root_key(store: Store, root: Root, passphrase: str) -> Signer:
    """The root's key. ``PkiError`` for a wrong passphrase."""
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
    """Have certificates that the root itself issued in its revocation list: serial number → reason.

    The list's number is part of its name. Of two engineers who add the next one at once, one is refused,
    reads the other's and goes on from there; so none is lost.
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
