"""Settings of research runs: images, the store of their code, and MLflow for metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.schema.base import IN_PLACE, NEVER, ROLLING, Part
from infra.schema.types import Bool, ImageReference, Int, Name, Size, Text


class ResearchImage(Part):
    """A container image that jobs start in."""

    image: Annotated[ImageReference, IN_PLACE]
    """Its reference, best with a digest: ``pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime``."""
    launcher: Annotated[Literal["torchrun", "tensorflow", "none"] | None, IN_PLACE] = None
    """What starts the processes of a job in it that names no launcher. Default: ``torchrun`` for ``python …``
    on more than one GPU, else none."""


class ResearchCode(Part):
    """Code that jobs are submitted with."""

    limit: Annotated[Size, Field(ge=1), IN_PLACE] = 256
    """The most that is shipped with one job, before compression."""
    keep_days: Annotated[Int, Field(ge=7, le=3650), IN_PLACE] = 90
    """For how many days code is kept that no run needs. Code of runs that wait, run or are stopped stays."""


class ResearchRuns(Part):
    """Output and results of runs."""

    keep_days: Annotated[Int | None, Field(ge=7, le=3650), IN_PLACE] = 365
    """For how many days each file is kept after it was written. ``null``: until somebody deletes it."""


class Research(Part):
    """Settings of research runs, and the bucket of their code."""

    tools: Annotated[ImageReference | None, IN_PLACE] = None
    """The image that brings code into pods and has TensorBoard, built from ``client/Dockerfile``. Default:
    jobs can't be submitted by ``causeway run``."""
    images: Annotated[dict[Name, ResearchImage], Field(min_length=1), IN_PLACE]
    """Container images by the names that jobs use."""
    default_image: Annotated[Name, IN_PLACE]
    """The one for jobs that name none."""
    code: Annotated[ResearchCode, IN_PLACE] = Field(default_factory=ResearchCode)
    """Code that jobs are submitted with."""
    runs: Annotated[ResearchRuns, IN_PLACE] = Field(default_factory=ResearchRuns)
    """Output and results of runs."""
    bucket: Annotated[Text | None, NEVER("a bucket keeps its name")] = None
    """The global name of the bucket for code. Default: made from the environment's name."""


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
