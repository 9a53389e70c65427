"""Where runs log parameters and metrics: MLflow and its database."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


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
