"""The autoscaler's configuration as the spec has it now, whether it was applied or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.commands.environment import Understood
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.autoscaler.config import Config


def scalable(understood: Understood) -> None:
    """``UsageError`` for an environment without pools."""
    from infra.render.kubernetes.scaling import has_pools

    if not has_pools(understood.cluster):
        raise UsageError(f"{understood.environment.spec_file} has no pools: there is nothing to scale")


def text(understood: Understood) -> str:
    """``config.json``. ``UsageError`` for an environment without pools."""
    from infra.render.kubernetes import autoscaler

    scalable(understood)
    return autoscaler.configuration(understood.cluster, understood.outputs)


def config(understood: Understood) -> Config:
    """The same, read."""
    from infra.autoscaler.config import parse

    return parse(text(understood))
