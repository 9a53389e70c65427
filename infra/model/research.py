"""What researchers run on, and where runs log parameters and metrics: MLflow and its database."""

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


class ManagedDatabase(Struct, frozen=True):
    """PostgreSQL at RDS."""

    name: str
    """Its identifier at AWS."""
    site: str
    """The AWS site whose private subnets it is in."""
    region: str
    """The AWS region."""
    subnets: tuple[str, ...]
    """Of two zones at least: RDS wants so."""
    instance_class: str
    storage_gib: int
    storage_limit_gib: int
    """It grows up to this by itself."""
    multi_az: bool
    backup_days: int
    tags: Mapping[str, str]


class Tracking(Struct, frozen=True):
    """MLflow."""

    image: str
    replicas: int
    thin_after_days: int
    role: str
    """The IAM role by which it reaches artifacts."""
    storage_gib: int
    """Of the database's disk, where it runs in a pod."""
    managed: ManagedDatabase | None
    """None where the database runs in a pod."""
