"""Where runs log parameters and metrics: MLflow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.schema.base import Part
from infra.schema.policy import IN_PLACE, NEVER, ROLLING
from infra.schema.types import Bool, ImageReference, Int, Size, Text


class Tracking(Part):
    """MLflow in the cluster, and its PostgreSQL database."""

    image: Annotated[ImageReference, ROLLING]
    """MLflow with its plugins for Kubernetes, built from ``tracking/Dockerfile``."""
    database: Annotated[Literal["rds", "pod"], NEVER("the records are in it")]
    """Where PostgreSQL runs: ``rds``, at AWS in the primary region, or ``pod``, on the first master, where it
    has no backup."""
    instance_class: Annotated[Text, IN_PLACE("the database restarts")] = "db.t4g.small"
    """The size of the database at RDS."""
    storage: Annotated[Size, Field(ge=20 * 1024, le=65536 * 1024), IN_PLACE("it grows and never shrinks")] = (
        20 * 1024
    )
    """The disk of the database. At RDS it grows up to five times this."""
    multi_az: Annotated[Bool, IN_PLACE] = False
    """Whether RDS keeps a standby in another zone."""
    backup_days: Annotated[Int, Field(ge=1, le=35), IN_PLACE] = 14
    """For how many days RDS keeps backups."""
    replicas: Annotated[Int, Field(ge=1, le=8), IN_PLACE] = 2
    """How many MLflow servers run."""
    thin_after_days: Annotated[Int, Field(ge=1, le=3650), IN_PLACE] = 90
    """How many days after a run has ended its metrics are thinned to 1,000 points each."""
