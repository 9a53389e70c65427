"""The interface of all secrets stores.

A secret is a text under a hierarchical name, ``vpn/rack-a-us-west-2/1``. Names are not secret and appear in
messages; values never appear in a message, a log or a ``repr``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from infra.errors import DriveError

LARGEST: Final = 8192
"""Maximum size of a value in bytes of UTF-8, in every store: that of an advanced SSM parameter."""

LONGEST: Final = 512
"""Maximum characters of a name: SSM allows 1,011 with prefix and its own parts."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,9}")


class SecretsError(DriveError):
    """Secrets cannot be read or written. The text never contains a value."""


class Store(Protocol):
    """A secrets store. Every method may raise ``SecretsError``; ``str()`` describes its location."""

    def get(self, name: str) -> str | None:
        """The value of a name, or None."""
        ...

    def read(self, names: Iterable[str]) -> Mapping[str, str]:
        """Name → value of those names that exist: ``get`` for many names with few calls."""
        ...

    def add(self, values: Mapping[str, str]) -> frozenset[str]:
        """Store the values whose names do not exist yet; returns those names. Of concurrent callers, on any
        machine that shares the store, exactly one succeeds for a name."""
        ...

    def put(self, name: str, value: str) -> None:
        """Store a value, replacing an existing one."""
        ...

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """The names that start with ``prefix``, sorted."""
        ...

    def delete(self, name: str) -> bool:
        """Delete a secret. False if it did not exist."""
        ...


def ensure(store: Store, names: Iterable[str], make: Callable[[], str]) -> dict[str, str]:
    """Name → value of all ``names``; missing values are generated and stored.

    Safe for concurrent use: the second caller gets the first one's value.
    """
    wanted = tuple(dict.fromkeys(names))
    found = dict(store.read(wanted))
    fresh = {name: make() for name in wanted if name not in found}
    if fresh:
        kept = store.add(fresh)
        found |= {name: fresh[name] for name in kept}
        found |= store.read([name for name in fresh if name not in kept])
    if missing := [name for name in wanted if name not in found]:
        raise SecretsError(
            f"{store}: somebody else is changing {', '.join(missing)} at this moment; run this again"
        )
    return {name: found[name] for name in wanted}


def check_name(name: str) -> None:
    """Raise ``SecretsError`` for a name that some store cannot hold."""
    if len(name) > LONGEST or not _NAME.fullmatch(name):
        raise SecretsError(
            f"{name[:80]!r} can't be the name of a secret: up to ten parts with slashes between them, each "
            f"of letters, digits, '.', '_' and '-' and not starting with '.', {LONGEST} characters in all"
        )


def check_value(name: str, value: str) -> None:
    """Raise ``SecretsError`` for a value that some store cannot hold."""
    size = len(value.encode())
    if not 0 < size <= LARGEST:
        raise SecretsError(f"the secret {name} has {size:,} bytes; a store holds 1 to {LARGEST:,}")


PKI_ROOT: Final = "pki/root"
"""The record of the root of the laptops' PKI. The PKI exists if it does, which can be checked without
decrypting it."""
