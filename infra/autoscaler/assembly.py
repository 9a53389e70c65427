"""Assembles the controller: the Kubernetes side, the AWS side, and the loop.

::

    side = Cluster(config, kubeconfig)      client, watches, lease, memory, writers
    loop = controller(config, side, …)      the loop
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from infra.autoscaler.aws.clients import READING, WRITING, Clients
from infra.autoscaler.aws.reading import Reader
from infra.autoscaler.aws.writing import AwsWriter
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Result
from infra.autoscaler.fault_isolation import isolated
from infra.autoscaler.kube.client import AwayError, Client
from infra.autoscaler.kube.credentials import Credentials
from infra.autoscaler.kube.events import Events
from infra.autoscaler.kube.lease import Lease, Terms, identity
from infra.autoscaler.kube.publishing import Publisher
from infra.autoscaler.kube.reading import Looks
from infra.autoscaler.kube.store import Store
from infra.autoscaler.kube.watching import Timing, Watcher
from infra.autoscaler.kube.writing import KubeWriter
from infra.autoscaler.loop import Cycle, Loop, Parts
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.decoding import Decoder, snapshot
from infra.autoscaler.observed.snapshot import Node, Pod, Snapshot
from infra.autoscaler.reporting import availability
from infra.autoscaler.reporting.pod_events import news
from infra.autoscaler.steady_clock import Steady

_LOG: Final = logging.getLogger(__name__)

LEASE: Final = "autoscaler"
"""The name of the Lease, which is also in the cluster role."""

_FIRST_LOOK: Final = 120.0
"""Seconds until all kinds must have been listed once."""


class Cluster:
    """The Kubernetes side."""

    def __init__(
        self,
        config: Config,
        kubeconfig: Path | None = None,
        *,
        terms: Terms | None = None,
        timing: Timing | None = None,
    ) -> None:
        """``kubeconfig``: None for the service account of this pod."""
        self._config = config
        chance = random.Random().random  # noqa: S311, it only spreads waits
        holder = identity()
        self.client = Client(Credentials(kubeconfig), chance=chance)
        self.watcher = Watcher(self.client, Decoder(), chance=chance, timing=timing or Timing())
        self.store = Store(self.client, config.namespace)
        self.lease = Lease(
            self.client, config.namespace, LEASE, holder, chance=chance, terms=terms or Terms()
        )
        self.writer = KubeWriter(self.client, now=time.time, may=self.lease.held)
        self._events = Events(self.client, holder, now=time.time, may=self.lease.held)
        self._publisher = Publisher(self.client, config.namespace, now=time.time, may=self.lease.held)
        self._startable: Mapping[str, float] = {}
        self._threads = threading.local()

    # The executor's interface.

    def do(self, action: Any) -> Result:
        """Execute an action."""
        return self.writer.do(action)

    def pods_on(self, node: str) -> Sequence[Pod]:
        """The current pods of a node."""
        return self._looks().pods_on(node)

    def node(self, name: str) -> Node | None:
        """The current state of a node."""
        return self._looks().node(name)

    def node_of(self, instance: str) -> Node | None:
        """The current node of an instance."""
        return self._looks().node_of(instance)

    def _looks(self) -> Looks:
        """One per thread, as decoders are not thread-safe."""
        if not hasattr(self._threads, "looks"):
            self._threads.looks = Looks(self.client, Decoder())
        looks: Looks = self._threads.looks
        return looks

    # The loop's observers.

    def tell(self, cycle: Cycle) -> None:
        """Write Events for pending pods."""
        if not cycle.dry and cycle.snapshot is not None and cycle.decision is not None:
            self._events.tell(news(cycle.snapshot, cycle.decision, self._config))

    def publish(self, cycle: Cycle) -> None:
        """Publish information for all users, at a low rate."""
        if cycle.dry or cycle.snapshot is None or cycle.decision is None:
            return
        snapshot, decision = cycle.snapshot, cycle.decision

        def look() -> dict[str, Any]:
            # Not the view that was used for the decision: drains that this loop began are only in its memory
            # (`Machine.state`, `Machine.back`), and GPUs of a machine to be terminated must not be reported
            # as free.
            view = state_builder.build(snapshot, decision.memory, self._config, decision.at)
            values, self._startable = availability.content(
                view, snapshot.queues, snapshot.flavors, decision.memory, self._config, self._startable
            )
            return values

        if problem := self._publisher.publish(look):
            _LOG.warning("what is free is not published: %s", problem)

    def stop(self) -> None:
        """Release the lease and end the watches. Called after the last write."""
        self.lease.stop()
        self.watcher.stop()


def world(
    config: Config, watcher: Watcher, reader: Reader, clock: Callable[[], float]
) -> Callable[[], Snapshot]:
    """A function that reads a snapshot. It raises if the cluster is not known well enough to act on it."""

    def read() -> Snapshot:
        if not watcher.healthy:
            problems = "; ".join(f"{what}: {why}" for what, why in watcher.errors.items())
            raise AwayError(f"the cluster is not known well enough: {problems or 'it was not read yet'}")
        found = reader.read()
        parts = watcher.parts()
        return snapshot(
            parts.objects,
            found.groups,
            {**found.errors, **parts.errors},
            found.prices,
            clock(),
            parts.faults,
            provisioning_class=config.provisioning_class,
        )

    return read


def controller(
    config: Config,
    cluster: Cluster,
    *,
    dry: bool = False,
    stop: threading.Event | None = None,
    observers: Sequence[Callable[[Cycle], None]] = (),
    reading: Clients | None = None,
    writing: Clients | None = None,
    clock: Callable[[], float] | None = None,
) -> Loop:
    """The loop for a cluster whose watches have been started."""
    clock = clock or Steady()
    dry = dry or config.dry_run
    parts = Parts(
        read=world(config, cluster.watcher, Reader(config, reading or Clients(READING), clock=clock), clock),
        decide=isolated,
        store=cluster.store,
        lease=None if dry else cluster.lease,
        kube=cluster,
        aws=AwsWriter(config, writing or Clients(WRITING), may=cluster.lease.held),
        observers=(*observers, cluster.tell, cluster.publish),
    )
    return Loop(config, parts, dry=dry, stop=stop, clock=clock)


def look(config: Config, kubeconfig: Path | None) -> tuple[Snapshot, Memory]:
    """Read everything once: the cluster, all regions, and the controller's memory. Nothing is written.

    Raises ``KubeError`` or ``UsageError`` if the cluster cannot be read; errors of AWS are in the snapshot.
    """
    cluster = Cluster(config, kubeconfig)
    cluster.watcher.start()
    try:
        if not cluster.watcher.wait(_FIRST_LOOK):
            problems = "; ".join(f"{what}: {why}" for what, why in cluster.watcher.errors.items())
            raise AwayError(f"the cluster can't be read: {problems}")
        memory = cluster.store.load()
        return world(config, cluster.watcher, Reader(config, Clients()), time.time)(), memory
    finally:
        cluster.watcher.stop()
