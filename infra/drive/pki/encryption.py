"""Encryption with a passphrase: the root's key in the store, and backups.

scrypt (RFC 7914) derives an AES-256 key from the passphrase, AES-GCM (SP 800-38D) encrypts. Encrypted PKCS#8
would be the usual format of a key, but ``cryptography`` derives its key by PBKDF2 with OpenSSL's default of
2,048 rounds, of which a GPU computes millions per second; scrypt needs 128 MiB per guess.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from infra.drive.pki.problems import PkiError

COST: Final = 17
"""log2 of scrypt's N: 128 MiB and about half a second (OWASP Password Storage Cheat Sheet)."""

_MOST: Final = 20
"""The largest cost that is accepted: 1 GiB. A malicious file cannot exhaust the memory."""

SHORTEST: Final = 12
"""Minimum length of a passphrase, in characters."""


def check_passphrase(passphrase: str) -> None:
    """Raise ``PkiError`` if the passphrase is too easy to guess."""
    if len(passphrase) < SHORTEST:
        raise PkiError(f"the passphrase is too short; use {SHORTEST} characters or more, such as four words")


def seal(data: bytes, passphrase: str, purpose: str, *, cost: int | None = None) -> dict[str, Any]:
    """Encrypt to a JSON object. ``purpose`` is authenticated: data encrypted for one purpose cannot be
    decrypted for another."""
    salt, nonce = os.urandom(16), os.urandom(12)
    cost = COST if cost is None else cost
    key = _key(passphrase, salt, cost)
    return {
        "kdf": "scrypt",
        "cost": cost,
        "salt": base64.b64encode(salt).decode(),
        "nonce": base64.b64encode(nonce).decode(),
        "data": base64.b64encode(AESGCM(key).encrypt(nonce, data, _bound(purpose))).decode(),
    }


def unseal(sealed: Mapping[str, Any], passphrase: str, purpose: str, where: str) -> bytes:
    """Decrypt the result of ``seal``. Raises ``PkiError``, naming ``where``, for a wrong passphrase or
    damaged data: the two cannot be distinguished."""
    match sealed:
        case {"kdf": "scrypt", "cost": int(cost), "salt": str(), "nonce": str(), "data": str()} if (
            1 <= cost <= _MOST
        ):
            pass
        case _:
            raise PkiError(f"{where}: damaged: not in the form that was written; restore it from a backup")
    try:
        salt, nonce, data = (
            base64.b64decode(sealed[part], validate=True) for part in ("salt", "nonce", "data")
        )
        return AESGCM(_key(passphrase, salt, cost)).decrypt(nonce, data, _bound(purpose))
    except InvalidTag:
        raise PkiError(
            f"{where}: the passphrase does not open it; check it (keyboard layout, spaces), and if it is the "
            "right one, the record is damaged: restore it from a backup"
        ) from None
    except (binascii.Error, ValueError):
        raise PkiError(
            f"{where}: damaged: not in the form that was written; restore it from a backup"
        ) from None


def _key(passphrase: str, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**cost, r=8, p=1).derive(passphrase.encode())


def _bound(purpose: str) -> bytes:
    return f"causeway pki\0{purpose}".encode()
