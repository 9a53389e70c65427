"""Properties of a node, existing or planned: what it offers to pods, and its taints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

Resources: TypeAlias = Mapping[str, int]
"""Resource name → amount: ``{"cpu": 1500, "memory": 2147483648, "nvidia.com/gpu": 1, "pods": 1}``."""


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
