"""What researchers run on: images, and how their code gets there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.schema.base import Part
from infra.schema.policy import IN_PLACE, NEVER
from infra.schema.types import ImageReference, Int, Name, Size, Text


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
    """What researchers run on, and the bucket that their code goes through."""

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
