"""What researchers run on, and how their tokens are known to AWS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ResearchImage:
    """A container image by the name that jobs use."""

    name: str
    image: str
    launcher: Literal["torchrun", "tensorflow", "none"]


@dataclass(frozen=True, slots=True)
class Issuer:
    """Where the world finds the keys that the API server signs tokens of service accounts with.

    OpenID Connect Discovery 1.0: ``<url>/.well-known/openid-configuration`` names the key set.
    """

    bucket: str
    """A public bucket, which holds these two documents and nothing else."""
    region: str
    """Its AWS region."""
    url: str
    tags: Mapping[str, str]


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
    issuer: Issuer
    roles: Mapping[str, str]
    """Namespace of a person or a group → the IAM role that its service account ``work`` may take."""
