"""The desired state of a cluster: the machines that become its nodes, and its rendered objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen, choose
from infra.drive import clock

if TYPE_CHECKING:
    from infra.drive.kubernetes.apply import Part
    from infra.drive.secrets import Store


def nodes_of(project: Project) -> list[Chosen]:
    """The named machines that become nodes."""
    return [machine for machine in choose(project, "", ()) if machine.is_node]


def rendered(project: Project) -> Path:
    """The folder of the cluster's rendered objects."""
    return project.environment.build / "kubernetes"


def permitted(store: Store, found: Part) -> Part:
    """The part without users whose revoked certificates have not expired."""
    from infra.drive.kubernetes import apply, secrets

    return apply.without(found, secrets.locked_out(store, clock.now()))
