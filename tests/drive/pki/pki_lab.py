"""What the tests of the PKI share: a clock that a test turns, a store in memory, lists as objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from cryptography import x509

PASSPHRASE = "correct horse battery"
START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def crls(pem: str) -> list[x509.CertificateRevocationList]:
    """The revocation lists of a PEM file, in its order."""
    end = "-----END X509 CRL-----\n"
    return [x509.load_pem_x509_crl((part + end).encode()) for part in pem.split(end)[:-1]]


def revoked_serials(pem: str) -> set[int]:
    """The serial numbers in all lists of a PEM file."""
    return {row.serial_number for crl in crls(pem) for row in crl}


class Clock:
    """Stands still until it is turned."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def turn(self, **time: float) -> None:
        self.now += timedelta(**time)


class Memory:
    """A store without a disk, for many small steps."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = dict(values or {})

    def __str__(self) -> str:
        return "memory"

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def read(self, names: Iterable[str]) -> Mapping[str, str]:
        return {name: self.values[name] for name in names if name in self.values}

    def add(self, values: Mapping[str, str]) -> frozenset[str]:
        fresh = {name: value for name, value in values.items() if name not in self.values}
        self.values |= fresh
        return frozenset(fresh)

    def put(self, name: str, value: str) -> None:
        self.values[name] = value

    def names(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(sorted(name for name in self.values if name.startswith(prefix)))

    def delete(self, name: str) -> bool:
        return self.values.pop(name, None) is not None
