"""The encryption key of an environment's local store, kept apart from the store.

It is in the user's configuration folder (``~/.config/causeway/<env>.key``, mode 0600), so that a copy of the
project's folder does not reveal any secret; or in ``CAUSEWAY_SECRETS_KEY`` if there is no user, as in CI.
Its text is 32 random bytes in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from infra.drive.secrets.store import SecretsError

VARIABLE: Final = "CAUSEWAY_SECRETS_KEY"
BYTES: Final = 32
"""AES-256."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and its source."""

    material: bytes = field(repr=False)
    origin: str

    @property
    def id(self) -> str:
        """An id that distinguishes keys without revealing them: part of a hash of 256 random bits."""
        return hashlib.sha256(b"causeway key id\0" + self.material).hexdigest()[:12]


def path_of(environment: str, env: Mapping[str, str]) -> Path:
    """The path of an environment's key."""
    given = env.get("XDG_CONFIG_HOME")
    if given:
        return Path(given) / "causeway" / f"{environment}.key"
    from platformdirs import user_config_path

    return user_config_path("causeway") / f"{environment}.key"


def find(environment: str, env: Mapping[str, str]) -> Key | None:
    """The key, or None if there is none. Raises ``SecretsError`` for a key that must not be used."""
    if text := env.get(VARIABLE, "").strip():
        return Key(_decode(text, VARIABLE), VARIABLE)
    path = path_of(environment, env)
    try:
        mode = path.stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise SecretsError(
                f"{path}: others on this machine may read this key (mode {stat.S_IMODE(mode):04o}); "
                f"if nobody did, close it with: chmod 600 {path}"
            )
        text = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise SecretsError(
            f"{path}: the key can't be read ({_why(problem)}); restore it from a backup"
        ) from None
    return Key(_decode(text, str(path)), str(path))


def make(environment: str, env: Mapping[str, str]) -> Key:
    """A new key, stored; or the one that another process just stored."""
    path = path_of(environment, env)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                stream.write(base64.b64encode(os.urandom(BYTES)).decode() + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            # Unlike a rename, a hard link never replaces an existing key.
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as problem:
        raise SecretsError(
            f"{path}: the key can't be written ({_why(problem)}); fix that, or set {VARIABLE} to what this "
            f"prints: head -c {BYTES} /dev/urandom | base64"
        ) from None
    key = find(environment, env)
    assert key is not None
    return key


def _decode(text: str, origin: str) -> bytes:
    try:
        material = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        material = b""
    if len(material) != BYTES:
        raise SecretsError(
            f"{origin}: not a key of {BYTES} bytes in base64; restore it from a backup (a new one would not "
            "open what is encrypted already)"
        )
    return material


def _why(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
