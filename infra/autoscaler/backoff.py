"""How long a group, or a zone of one, is left alone after a failure: longer each time in a row.

The first failure bars it for ``backoff_min``; one after a bar has ended doubles that, up to ``backoff_max``;
``backoff_reset`` after the last failure it counts as new. Nothing but time ends a bar: that no failures are
seen while nobody asks proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from infra.autoscaler.config import Config, Group
from infra.autoscaler.memory import Backoff


def after(known: Backoff | None, code: str, message: str, when: float, config: Config) -> Backoff:
    """The bar after a failure at ``when``, given the one that was known before."""
    if known is None or when - known.last >= config.backoff_reset:
        return Backoff(code, message, when, when, when + length(1, config), 1)
    if when <= known.until:
        # More of the same attempt: it lasts, but does not grow.
        last = max(known.last, when)
        return Backoff(
            code, message, known.first, last, max(known.until, last + length(known.step, config)), known.step
        )
    step = known.step + 1
    return Backoff(code, message, known.first, when, when + length(step, config), step)


def length(step: int, config: Config) -> float:
    """Seconds, at the first, second … time in a row."""
    # After 30 doublings any configured end is reached; the number stays small.
    longest = max(config.backoff_min, config.backoff_max)
    return float(min(config.backoff_min << min(step - 1, 30), longest))


def in_force(backoffs: Mapping[str, Backoff], key: str, now: float) -> Backoff | None:
    """The bar on ``group`` or ``group/zone`` now."""
    known = backoffs.get(key)
    return known if known is not None and known.until > now else None


def barred(group: Group, backoffs: Mapping[str, Backoff], now: float) -> Backoff | None:
    """What bars a group as a whole: its own bar, or those of all its zones, until the first of them ends."""
    if (own := in_force(backoffs, group.name, now)) is not None:
        return own
    zones = [in_force(backoffs, f"{group.name}/{zone}", now) for zone in group.zones]
    known = [each for each in zones if each is not None]
    return min(known, key=lambda each: each.until) if known and len(known) == len(zones) else None


def kept(backoffs: Mapping[str, Backoff], config: Config, now: float) -> dict[str, Backoff]:
    """Those that still say something: in force, or young enough for the next failure to grow from."""
    return {
        key: each
        for key, each in backoffs.items()
        if each.until > now or now - each.last < config.backoff_reset
    }


def clock(at: float) -> str:
    """A time of day for people: ``14:05 UTC``."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC"
