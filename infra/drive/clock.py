"""The time of day. Nothing else asks for it; what decides by it is given a moment."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """In UTC."""
    return datetime.now(UTC)
