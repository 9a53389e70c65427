"""What the PKI's tests share: a clock that a test turns, and a place in memory for secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

PASSPHRASE = "correct horse battery"
START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


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
