"""The autoscaler's configuration according to the current spec, applied or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.commands.environment import Project
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.autoscaler.config import Config


def scalable(project: Project) -> None:
    """Raise ``UsageError`` if the environment has no pools."""
    from infra.render.kubernetes.nodes import has_pools

    if not has_pools(project.cluster):
        raise UsageError(f"{project.environment.spec_file} has no pools: there is nothing to scale")


def text(project: Project) -> str:
    """``config.json``. Raises ``UsageError`` if the environment has no pools."""
    from infra.render.kubernetes import autoscaler

    scalable(project)
    return autoscaler.configuration(project.cluster, project.outputs)


def config(project: Project) -> Config:
    """The parsed configuration."""
    from infra.autoscaler.config import parse

    return parse(text(project))
