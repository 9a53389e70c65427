"""The default store: one encrypted file per environment, in a git-ignored folder beside ``environments/``.

``.secrets/research.json`` holds each value encrypted with AES-256-GCM (NIST SP 800-38D) and a random 96-bit
nonce; the environment and the secret's name are associated data, so that values cannot be swapped. The key
is elsewhere, see ``infra.drive.secrets.keyfile``. Names are readable; values are not.

A write creates a new file, syncs it to disk, and renames it over the old one, under a lock. So readers never
wait, and a crash leaves either the old file or the new one.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from infra.drive.flock import Taken, held
from infra.drive.secrets import keyfile
from infra.drive.secrets.keyfile import Key
from infra.drive.secrets.store import SecretsError, check_name, check_value
from infra.errors import newer

_NONCE: Final = 12
_PATIENCE: Final = 30.0
"""Seconds to wait for another process's write, which takes milliseconds."""

_GIT: Final = (
    "# Secrets, encrypted. Not for git: someone who gets a key later could read all that was ever here.\n*\n"
)


class LocalStore:
    """Secrets of one environment in ``<folder>/<environment>.json``."""

    def __init__(self, environment: str, folder: Path, env: Mapping[str, str]) -> None:
        self._environment = environment
        self._file = folder / f"{environment}.json"
        self._env = env

    def __str__(self) -> str:
        return str(self._file)

    def get(self, name: str) -> str | None:
        return self.read([name]).get(name)

    def read(self, names: Iterable[str]) -> Mapping[str, str]:
        entries = self._load()
        wanted = [name for name in names if name in entries]
        if not wanted:
            return {}
        key = self._key()
        return {name: self._open(key, name, entries[name]) for name in wanted}

    def add(self, values: Mapping[str, str]) -> frozenset[str]:
        return self._write(values, over=False)

    def put(self, name: str, value: str) -> None:
        self._write({name: value}, over=True)

    def names(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(sorted(name for name in self._load() if name.startswith(prefix)))

    def delete(self, name: str) -> bool:
        if name not in self._load():
            return False
        with self._locked():
            entries = self._load()
            if entries.pop(name, None) is None:
                return False
            self._save(entries, self._key())
            return True

    def _write(self, values: Mapping[str, str], *, over: bool) -> frozenset[str]:
        for name, value in values.items():
            check_name(name)
            check_value(name, value)
        with self._locked():
            entries = self._load()
            fresh = frozenset(name for name in values if over or name not in entries)
            if fresh:
                key = self._key()
                entries |= {name: self._seal(key, name, values[name]) for name in fresh}
                self._save(entries, key)
            return fresh

    def _key(self) -> Key:
        """The key of the file; a new one for the first secret."""
        held = self._document().get("key")
        key = keyfile.find(self._environment, self._env)
        if held is None:
            return key or keyfile.make(self._environment, self._env)
        if key is None:
            raise SecretsError(
                f"{self._file}: its key is not on this machine; put it back into "
                f"{keyfile.path_of(self._environment, self._env)} (mode 0600), or set {keyfile.VARIABLE}"
            )
        if key.id != held:
            raise SecretsError(
                f"{self._file}: encrypted with another key (its id is {held}) than the one in {key.origin} "
                f"({key.id}); put the right one there, or set {keyfile.VARIABLE} to it"
            )
        return key

    def _seal(self, key: Key, name: str, value: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        sealed = AESGCM(key.material).encrypt(nonce, value.encode(), self._bound(name))
        return base64.b64encode(nonce + sealed).decode()

    def _open(self, key: Key, name: str, entry: str) -> str:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            sealed = base64.b64decode(entry, validate=True)
            return AESGCM(key.material).decrypt(sealed[:_NONCE], sealed[_NONCE:], self._bound(name)).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise self._damaged(f"the secret {name} was changed by something else") from None

    def _bound(self, name: str) -> bytes:
        return f"causeway\0{self._environment}\0{name}".encode()

    def _load(self) -> dict[str, str]:
        """Name → encrypted value."""
        return dict(self._document().get("secrets", {}))

    def _document(self) -> Mapping[str, Any]:
        """The current contents of the file; empty before the first secret."""
        try:
            document = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as problem:
            raise SecretsError(f"{self._file}: can't be read ({problem.strerror})") from None
        except ValueError:
            raise self._damaged("not the JSON that was written") from None
        match document:
            case {"version": 1, "environment": str(environment), "key": str(), "secrets": dict(secrets)} if (
                all(isinstance(entry, str) for entry in secrets.values())
            ):
                if environment != self._environment:
                    raise SecretsError(
                        f"{self._file}: belongs to the environment {environment}, and opens for no other; "
                        "move it back, or remove it to start with fresh secrets"
                    )
                return dict(document)
            case {"version": int(version)} if version > 1:
                raise SecretsError(f"{self._file}: {newer(version, 1)}")
            case _:
                raise self._damaged("not in the form that was written")

    def _save(self, entries: Mapping[str, str], key: Key) -> None:
        document = {
            "version": 1,
            "environment": self._environment,
            "key": key.id,
            "secrets": dict(sorted(entries.items())),
        }
        target = self._file.resolve()  # a symbolic link is kept
        fresh = target.with_name(f".{target.name}.new")
        try:
            fresh.unlink(missing_ok=True)  # left by a run that was killed, as this process holds the lock
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(document, indent=1) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(target)
            _settle(target.parent)
        except OSError as problem:
            raise SecretsError(
                f"{self._file}: can't be written ({problem.strerror}); nothing changed"
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder = self._file.parent
        try:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            ignore = folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text(_GIT, encoding="utf-8")
            with held(folder / f".{self._environment}.lock", timeout=_PATIENCE, mode=0o600):
                yield
        except Taken:
            raise SecretsError(
                f"{self._file}: another run has been writing for {_PATIENCE:.0f} s; wait for it"
            ) from None
        except OSError as problem:
            raise SecretsError(f"{folder}: can't be written ({problem.strerror})") from None

    def _damaged(self, what: str) -> SecretsError:
        return SecretsError(
            f"{self._file}: damaged: {what}; restore the file from a backup. Without one, remove it: new "
            "secrets are then made, and every tunnel gets its new key in the next apply"
        )


def _settle(folder: Path) -> None:
    """Sync the folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
