"""Which notices are news: each is said once, and again a day later if it still holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from infra.autoscaler.decision import Notice

AGAIN: Final = 86400.0
"""Seconds after which a notice is said again."""


def unsent(
    notices: Iterable[Notice], told: Mapping[str, float], now: float
) -> tuple[tuple[Notice, ...], dict[str, float]]:
    """Those that were not said within the last day, one a key, and what is remembered from now on.

    It is remembered before it is sent: a process that dies in between leaves a notice out rather than say
    it twice.
    """
    kept = {key: when for key, when in told.items() if now - when < AGAIN}
    found: dict[str, Notice] = {}
    for each in notices:
        if each.key not in kept:
            found.setdefault(each.key, each)
    return tuple(found.values()), {**kept, **dict.fromkeys(found, now)}
