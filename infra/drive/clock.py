"""The current time. No other module reads the clock; functions that depend on the time take it as an
argument."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)
