"""What researchers run on: images, and how their code gets there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.spec.base import Part
from infra.spec.policy import IN_PLACE, NEVER
from infra.spec.types import Int, Name, Size, Text


class ResearchImage(Part):
    """A container image that jobs start in."""

    image: Annotated[Text, IN_PLACE]
    """Its reference, best with a digest: ``pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime``."""
    launcher: Annotated[Literal["torchrun", "tensorflow", "none"], IN_PLACE] = "none"
    """What starts the processes of a job in it that names no launcher."""


class ResearchCode(Part):
    """Code that jobs are submitted with."""

    limit: Annotated[Size, Field(ge=1), IN_PLACE] = 256
    """The most that is shipped with one job, before compression."""
    keep_days: Annotated[Int, Field(ge=1, le=3650), IN_PLACE] = 90
    """For how many days code is kept after it was sent."""


class Research(Part):
    """What researchers run on, and the bucket that their code goes through."""

    tools: Annotated[Text | None, IN_PLACE] = None
    """The image that brings code into pods, built from ``client/Dockerfile``. Default: jobs can't be
    submitted by ``causeway run``."""
    images: Annotated[dict[Name, ResearchImage], Field(min_length=1), IN_PLACE]
    """Container images by the names that jobs use."""
    default_image: Annotated[Name, IN_PLACE]
    """The one for jobs that name none."""
    code: Annotated[ResearchCode, IN_PLACE] = Field(default_factory=ResearchCode)
    """Code that jobs are submitted with."""
    bucket: Annotated[Text | None, NEVER("a bucket keeps its name")] = None
    """The global name of the bucket for code. Default: made from the environment's name."""
