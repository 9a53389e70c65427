"""Access to the cluster for its commands: the CA from the store, the API, tools."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from infra.commands import pki_store, session
from infra.commands.environment import Project
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.drive.kubernetes.access import Access
    from infra.drive.kubernetes.api import Api
    from infra.drive.kubernetes.helm import Helm
    from infra.drive.kubernetes.kubectl import Kubectl
    from infra.drive.secrets import Store


@dataclass
class Reach:
    """Administrator access to the cluster."""

    project: Project
    access: Access

    @cached_property
    def api(self) -> Api:
        from infra.drive.kubernetes.api import Api

        return Api(self.access)

    @cached_property
    def kubectl(self) -> Kubectl:
        from infra.drive.kubernetes import kubectl

        return kubectl.Kubectl(kubectl.find(self.project.cluster.kubernetes.version), self.access)

    @cached_property
    def helm(self) -> Helm:
        from infra.drive.kubernetes import helm

        return helm.Helm(helm.find(), self.access)

    def another(self) -> Api:
        """A further connection, for another thread."""
        from infra.drive.kubernetes.api import Api

        return Api(self.access)


def real(project: Project) -> None:
    """Raise ``UsageError`` for a cluster without machines or masters."""
    if previewed(project):
        name = project.environment.name
        raise UsageError(f"{session.NO_MACHINES}: {name} has no cluster to work on")


def previewed(project: Project) -> bool:
    """Whether the cluster can only be previewed: the embedded AWS has no machines.

    Raises ``UsageError`` for a spec without masters.
    """
    environment, cluster = project.environment, project.cluster
    if cluster.control_plane is None:
        raise UsageError(f"{environment.spec_file} has no control plane: it has no AWS site for masters")
    return session.is_embedded(environment, cluster)


@contextmanager
def reach(project: Project, store: Store | None = None) -> Iterator[Reach]:
    """Access to the cluster while the block runs. Raises ``UsageError`` if it was never created."""
    from infra.drive.kubernetes import access, secrets

    real(project)
    kept = store or pki_store.store(project)
    authority = secrets.authority(kept)
    if authority is None:
        raise UsageError(not_begun(project, kept))
    with access.opened(project.environment.build, access.endpoint(project.cluster), authority) as found:
        yield Reach(project, found)


def not_begun(project: Project, store: Store) -> str:
    """The error for a cluster whose keys do not exist."""
    return f"{store} has no keys of a cluster yet; begin it: invoke cluster.up {project.environment.options}"


def work(project: Project, instances: Collection[str]) -> Mapping[str, Sequence[str]]:
    """Instance ids → the pods at work on each, ``namespace/name``. Raises a Causeway error if the cluster
    does not answer."""
    from infra.drive.kubernetes import nodes

    with reach(project) as there:
        return nodes.work(there.api, instances)
