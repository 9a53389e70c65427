"""News of an object, which becomes an Event of Kubernetes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class News(Struct, frozen=True):
    """Something about an object."""

    kind: str
    namespace: str
    """Empty for a node."""
    name: str
    uid: str
    reason: str
    """One word: ``WaitsForCapacity``."""
    note: str
    """One line for people."""
    type: Literal["Normal", "Warning"] = "Normal"
    action: str = "Scale"
    api: str = "v1"
    """The object's API version."""
