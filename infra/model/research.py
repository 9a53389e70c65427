"""What researchers run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class ResearchImage(Struct, frozen=True):
    """A container image by the name that jobs use."""

    name: str
    image: str
    launcher: Literal["torchrun", "tensorflow", "none"] | None
    """What starts the processes of jobs in it; None where nobody says."""


class Research(Struct, frozen=True):
    """What researchers run on."""

    tools: str | None
    """The image that brings code into pods."""
    images: tuple[ResearchImage, ...]
    """By name."""
    default_image: str
    code_limit_mib: int
    """Of one job's code, before compression."""
    code_keep_days: int
    """For how long the store keeps code that no run needs."""
    usd_per_gb: Mapping[str, float] = {}
    """Site → what AWS takes for each GB of the store that goes there; those whose price is not known are left
    out."""
