"""Settings of research runs, and MLflow with its database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class ResearchImage(Struct, frozen=True):
    """A container image with the name that jobs use."""

    name: str
    image: str
    launcher: Literal["torchrun", "tensorflow", "none"] | None
    """What starts the processes of its jobs; None if not specified."""


class Research(Struct, frozen=True):
    """Settings of research runs."""

    tools: str | None
    """The image that copies code into pods."""
    images: tuple[ResearchImage, ...]
    """Sorted by name."""
    default_image: str
    code_limit_mib: int
    """The maximum size of a job's code, before compression."""
    code_keep_days: int
    """How long the store keeps code that no run needs."""
    usd_per_gb: Mapping[str, float] = {}
    """Site → AWS's price per GB transferred from the store to it; without sites whose price is unknown."""


class ManagedDatabase(Struct, frozen=True):
    """A PostgreSQL database at RDS."""

    name: str
    """Its RDS identifier."""
    site: str
    """The AWS site with its private subnets."""
    region: str
    """The AWS region."""
    subnets: tuple[str, ...]
    """In at least two zones, as RDS requires."""
    instance_class: str
    storage_gib: int
    storage_limit_gib: int
    """The maximum to which storage is scaled automatically."""
    multi_az: bool
    backup_days: int
    tags: Mapping[str, str]


class Tracking(Struct, frozen=True):
    """MLflow."""

    image: str
    replicas: int
    thin_after_days: int
    role: str
    """The IAM role for artifacts."""
    storage_gib: int
    """The size of the database's disk, if it runs in a pod."""
    managed: ManagedDatabase | None
    """None if the database runs in a pod."""
