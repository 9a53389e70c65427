"""What the cluster's commands work with: its authority from the store, a way to its API, its tools."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from infra.commands import world
from infra.commands.environment import Understood
from infra.commands.vpn import keeping
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.drive.kubernetes.access import Access
    from infra.drive.kubernetes.api import Api
    from infra.drive.kubernetes.helm import Helm
    from infra.drive.kubernetes.kubectl import Kubectl
    from infra.drive.secrets import Store


@dataclass
class Reach:
    """An administrator's way to the cluster."""

    understood: Understood
    access: Access

    @cached_property
    def api(self) -> Api:
        from infra.drive.kubernetes.api import Api

        return Api(self.access)

    @cached_property
    def kubectl(self) -> Kubectl:
        from infra.drive.kubernetes import kubectl

        return kubectl.Kubectl(kubectl.find(self.understood.cluster.kubernetes.version), self.access)

    @cached_property
    def helm(self) -> Helm:
        from infra.drive.kubernetes import helm

        return helm.Helm(helm.find(), self.access)

    def another(self) -> Api:
        """One more connection, for a thread."""
        from infra.drive.kubernetes.api import Api

        return Api(self.access)


def real(understood: Understood) -> None:
    """``UsageError`` for a cluster that has no machines, or no masters."""
    if previewed(understood):
        name = understood.environment.name
        raise UsageError(f"{world.NO_MACHINES}: {name} has no cluster to work on")


def previewed(understood: Understood) -> bool:
    """Whether the cluster can only be previewed: there are no machines behind the embedded AWS.

    ``UsageError`` for a spec without masters.
    """
    environment, cluster = understood.environment, understood.cluster
    if cluster.control_plane is None:
        raise UsageError(f"{environment.spec_file} has no control plane: it has no AWS site for masters")
    return world.is_embedded(environment, cluster)


@contextmanager
def reach(understood: Understood, store: Store | None = None) -> Iterator[Reach]:
    """A way to the cluster for as long as the block runs. ``UsageError`` for one that was never begun."""
    from infra.drive.kubernetes import access, secrets

    real(understood)
    kept = store or keeping.store(understood)
    authority = secrets.authority(kept)
    if authority is None:
        raise UsageError(
            f"{kept} has no keys of a cluster yet; begin it: "
            f"invoke cluster.up {understood.environment.options}"
        )
    with access.opened(understood.environment.build, access.endpoint(understood.cluster), authority) as found:
        yield Reach(understood, found)


def work(understood: Understood, instances: Collection[str]) -> Mapping[str, Sequence[str]]:
    """Instance ids → the pods at work on each, ``namespace/name``. Our errors where the cluster does not
    answer."""
    from infra.drive.kubernetes import nodes

    with reach(understood) as there:
        return nodes.work(there.api, instances)
