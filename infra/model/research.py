"""What researchers run on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ResearchImage:
    """A container image by the name that jobs use."""

    name: str
    image: str
    launcher: Literal["torchrun", "tensorflow", "none"]


@dataclass(frozen=True, slots=True)
class Research:
    """What researchers run on."""

    tools: str | None
    """The image that brings code into pods."""
    images: tuple[ResearchImage, ...]
    """By name."""
    default_image: str
    code_limit_mib: int
    """Of one job's code, before compression."""
