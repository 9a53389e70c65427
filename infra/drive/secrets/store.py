"""The interface of all secrets stores.

A secret is a text under a hierarchical name, ``vpn/rack-a-us-west-2/1``. Names are not secret and appear in
messages; values appear in no message, no log and no ``repr``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from infra.errors import DriveError

LARGEST: Final = 8192
"""Bytes of UTF-8 of a value, in every store alike: what an advanced SSM parameter holds."""

LONGEST: Final = 512
"""Characters of a name; leaves a prefix its share of the 1,011 that SSM allows with its own parts."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,9}")


class SecretsError(DriveError):
    """Secrets can't be read or written. Its text never holds a value."""


class Store(Protocol):
    """A place for secrets. Every method may raise ``SecretsError``; ``str()`` tells people where it is."""

    def get(self, name: str) -> str | None:
        """The value of a name, or None."""
        ...

    def read(self, names: Iterable[str]) -> Mapping[str, str]:
        """Name → value of those that there are: ``get`` of many with few calls."""
        ...

    def add(self, values: Mapping[str, str]) -> frozenset[str]:
        """Keep each value whose name has none, and tell which names these were. Of many who try at once, on
        any machine that shares the store, exactly one succeeds with a name."""
        ...

    def put(self, name: str, value: str) -> None:
        """Keep a value, in place of any before."""
        ...

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """The names that start with ``prefix``, sorted."""
        ...

    def delete(self, name: str) -> bool:
        """Forget a secret. False if there was none."""
        ...


def ensure(store: Store, names: Iterable[str], make: Callable[[], str]) -> dict[str, str]:
    """Name → value of all ``names``; what is missing is made and kept.

    Safe for several people at once: the second gets the value of the first.
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
    """``SecretsError`` for a name that not every store can hold."""
    if len(name) > LONGEST or not _NAME.fullmatch(name):
        raise SecretsError(
            f"{name[:80]!r} can't be the name of a secret: up to ten parts with slashes between them, each "
            f"of letters, digits, '.', '_' and '-' and not starting with '.', {LONGEST} characters in all"
        )


def check_value(name: str, value: str) -> None:
    """``SecretsError`` for a value that not every store can hold."""
    size = len(value.encode())
    if not 0 < size <= LARGEST:
        raise SecretsError(f"the secret {name} has {size:,} bytes; a store holds 1 to {LARGEST:,}")


PKI_ROOT: Final = "pki/root"
"""The root of the laptops' PKI: without it there is no PKI, which is so known without opening one."""
