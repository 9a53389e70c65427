"""Back-off of a group, or of one of its zones, after failures: longer for consecutive ones.

The first failure bars it for ``backoff_min``; one after the back-off has ended doubles that, up to
``backoff_max``; after ``backoff_reset`` without failures the next one counts as the first. Only time ends a
back-off: the absence of failures while nothing is requested proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from infra.autoscaler.config import Config, Group
from infra.autoscaler.memory import Backoff


def after(known: Backoff | None, code: str, message: str, when: float, config: Config) -> Backoff:
    """The back-off after a failure at ``when``, given the previous one."""
    if known is None or when - known.last >= config.backoff_reset:
        return Backoff(code, message, when, when, when + length(1, config), 1)
    if when <= known.until:
        # Failures during a back-off extend it, but do not double it.
        last = max(known.last, when)
        return Backoff(
            code, message, known.first, last, max(known.until, last + length(known.step, config)), known.step
        )
    step = known.step + 1
    return Backoff(code, message, known.first, when, when + length(step, config), step)


def length(step: int, config: Config) -> float:
    """The duration in seconds of the ``step``-th consecutive back-off."""
    # After 30 doublings every configured maximum is reached; the number stays small.
    longest = max(config.backoff_min, config.backoff_max)
    return float(min(config.backoff_min << min(step - 1, 30), longest))


def in_force(backoffs: Mapping[str, Backoff], key: str, now: float) -> Backoff | None:
    """The current back-off of ``group`` or ``group/zone``."""
    known = backoffs.get(key)
    return known if known is not None and known.until > now else None


def barred(group: Group, backoffs: Mapping[str, Backoff], now: float) -> Backoff | None:
    """The back-off of a whole group: its own, or, if all its zones have one, the first of them to end."""
    if (own := in_force(backoffs, group.name, now)) is not None:
        return own
    zones = [in_force(backoffs, f"{group.name}/{zone}", now) for zone in group.zones]
    known = [each for each in zones if each is not None]
    return min(known, key=lambda each: each.until) if known and len(known) == len(zones) else None


def kept(backoffs: Mapping[str, Backoff], config: Config, now: float) -> dict[str, Backoff]:
    """The back-offs to remember: in force, or recent enough to affect the next one."""
    return {
        key: each
        for key, each in backoffs.items()
        if each.until > now or now - each.last < config.backoff_reset
    }


def clock(at: float) -> str:
    """A time of day for people: ``14:05 UTC``."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC"
