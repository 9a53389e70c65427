"""The whole controller on a stage: real HTTP to a Kubernetes API and to an embedded AWS, with a kubelet and a
scheduler that do as little as a test needs. Time is ours."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from autoscaler import apiobjects, make
from autoscaler.apiserver import ApiServer, serving
from autoscaler.embedded import EmbeddedAws
from autoscaler.kube.clusters import FAST
from waiting import until

from infra.autoscaler.assembly import Cluster, controller
from infra.autoscaler.aws.clients import WRITING, Clients, Patience
from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import Decision, SetDesired
from infra.autoscaler.kube.lease import Terms
from infra.autoscaler.loop import Cycle
from infra.autoscaler.observed.snapshot import GPU, Snapshot

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
JOBS = "/apis/batch/v1/jobs"
QUICK = Terms(duration=90.0, deadline=60.0, retry=0.2)
"""Kept for long, so that a slow machine loses none; it is given back where another is to have it."""
_TIMING = replace(FAST, silence=5.0, stale=60.0)
_READING = Patience(connect=1.0, read=5.0, attempts=1)


@cache
def _made(patience: Patience, address: str) -> Clients:
    return Clients(patience)


def _clients(patience: Patience) -> Clients:
    """One for all stages of an AWS: to make them takes longer than a loop."""
    return _made(patience, os.environ["AWS_ENDPOINT_URL"])


@dataclass(frozen=True)
class Turn:
    """A loop that was."""

    cycle: Cycle

    @property
    def decision(self) -> Decision:
        assert self.cycle.decision is not None, self.cycle.error
        return self.cycle.decision

    @property
    def snapshot(self) -> Snapshot:
        assert self.cycle.snapshot is not None, self.cycle.error
        return self.cycle.snapshot

    @property
    def statuses(self) -> dict[str, str]:
        """Group → what became of its new size."""
        return {
            each.action.group: each.result.status
            for each in self.cycle.results
            if isinstance(each.action, SetDesired)
        }


class Player:
    """A controller's process."""

    def __init__(self, stage: Stage, **more: Any) -> None:
        self.stage = stage
        self.cluster = Cluster(stage.config, stage.kubeconfig, terms=QUICK, timing=_TIMING)
        self.loop = controller(
            stage.config,
            self.cluster,
            reading=_clients(_READING),
            writing=_clients(WRITING),
            clock=lambda: stage.now,
            **more,
        )
        self.dry = bool(more.get("dry"))
        self.cluster.watcher.start()
        assert self.cluster.watcher.wait(15)
        if not self.dry:
            self.cluster.lease.start()

    def turn(self, seconds: float = 0.0) -> Turn:
        """One loop, so much later, on the world as it is then."""
        self.stage.now += seconds
        until(self._sees_all)
        return Turn(self.loop.once())

    def _sees_all(self) -> bool:
        seen = self.cluster.watcher.parts().objects
        return all(
            {each.version for each in seen[kind].values()} == self.stage.versions(resource)
            for kind, resource in (("Pod", PODS), ("Node", NODES), ("Job", JOBS))
        )

    def end(self) -> None:
        self.cluster.stop()


class Stage:
    """A world of its own."""

    def __init__(self, aws: EmbeddedAws, api: ApiServer, config: Config, kubeconfig: Path) -> None:
        self.aws = aws
        self.api = api
        self.config = config
        self.kubeconfig = kubeconfig
        self.now = float(int(time.time()))
        self.players: list[Player] = []
        self._first: Player | None = None

    def player(self, **more: Any) -> Player:
        """Another process."""
        self.players.append(Player(self, **more))
        return self.players[-1]

    def turn(self, seconds: float = 0.0) -> Turn:
        """A loop of the one controller that there is."""
        if self._first is None:
            self._first = self.player()
            until(self._first.cluster.lease.held)
        return self._first.turn(seconds)

    @property
    def first(self) -> Player:
        assert self._first is not None, "there was no turn yet"
        return self._first

    def versions(self, resource: str) -> set[str]:
        return {
            item["metadata"]["resourceVersion"]
            for (kind, _, _), item in list(self.api.objects.items())
            if kind == resource and (item.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        }

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def sizes(self) -> dict[str, int]:
        """Group → its size, where it has one."""
        sizes = {group.name: self.aws.group(group).desired_capacity for group in self.config.groups}
        return {name: size for name, size in sizes.items() if size}

    def written(self) -> list[tuple[str, str]]:
        """(method, path) of what was written to the cluster, but for leases and events."""
        return [
            (method, path)
            for method, path in self.api.requests
            if method != "GET" and "/leases" not in path and "/events" not in path
        ]

    # What others do.

    def pods(self, count: int, name: str = "work", *, gpus: int = 4, **more: Any) -> list[str]:
        """So many pods that wait."""
        names = [f"{name}-{number}" for number in range(count)]
        asked = apiobjects.container({"cpu": "1", "memory": "1Gi"}, {GPU: str(gpus)} if gpus else None)
        tolerations = [{"key": GPU, "operator": "Exists"}] if gpus else []
        for pod_name in names:
            body = apiobjects.pod(pod_name, asked, tolerations=tolerations, **more)
            for key in ("uid", "resourceVersion", "creationTimestamp"):
                body["metadata"].pop(key)
            self.api.put(PODS, body)
        return names

    def boot(self, *groups: Group) -> list[str]:
        """Every instance that has none gets its node."""
        joined = []
        known = {each["spec"]["providerID"] for each in self._all(NODES)}
        for group in groups or self.config.groups:
            for state in self.aws.group(group).instance_states:
                provider = f"aws:///{group.zones[0]}/{state.instance.id}"
                if provider not in known:
                    joined.append(self._join(group, state.instance.id, provider))
        return joined

    def _join(self, group: Group, name: str, provider: str) -> str:
        moment = self.moment().strftime("%Y-%m-%dT%H:%M:%SZ")
        labels = {
            **group.labels,
            "topology.kubernetes.io/zone": group.zones[0],
            "node.kubernetes.io/instance-type": group.types[0].name,
            "kubernetes.io/hostname": name,
        }
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": moment}
        self.api.put(NODES, {
            "metadata": {"name": name, "labels": labels, "creationTimestamp": moment},
            "spec": {
                "providerID": provider,
                "taints": [
                    {"key": each.key, "value": each.value, "effect": each.effect} for each in group.taints
                ],
            },
            "status": {
                "allocatable": {
                    key: f"{amount}m" if key == "cpu" else str(amount)
                    for key, amount in group.allocatable.items()
                },
                "conditions": [ready],
            },
        })  # fmt: skip
        return name

    def silence(self, *nodes: str) -> None:
        """Nodes whose machines are gone are not ready any more, and these."""
        running = {
            state.instance.id
            for group in self.config.groups
            for state in self.aws.group(group).instance_states
        } - {*nodes}
        moment = self.moment().strftime("%Y-%m-%dT%H:%M:%SZ")
        for node in self._all(NODES):
            (ready,) = node["status"]["conditions"]
            if node["metadata"]["name"] not in running and ready["status"] == "True":
                ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": moment}
                self.api.put(NODES, {**node, "status": {**node["status"], "conditions": [ready]}})

    def schedule(self) -> None:
        """Each waiting pod gets a free node, one a node."""
        taken = {each["spec"].get("nodeName") for each in self._all(PODS)}
        free = [
            each["metadata"]["name"]
            for each in self._all(NODES)
            if each["metadata"]["name"] not in taken
            and not any(
                taint["key"].startswith("causeway.dev/") for taint in each["spec"].get("taints") or ()
            )
        ]
        for pod in self._all(PODS):
            if not pod["spec"].get("nodeName") and free:
                self.bind(pod["metadata"]["name"], free.pop(0))

    def bind(self, pod: str, node: str) -> None:
        """A pod starts on a node."""
        body = self.api.get(PODS, pod, "user-ada")
        assert body is not None
        body["spec"]["nodeName"] = node
        body["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.api.put(PODS, body)

    def finish(self, *pods: str) -> None:
        """Pods end."""
        for pod in pods:
            self.api.remove(PODS, pod, "user-ada")

    def nodes(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self._all(NODES))

    def tainted(self) -> list[str]:
        """Nodes with our taint."""
        return sorted(
            each["metadata"]["name"]
            for each in self._all(NODES)
            if any(taint["key"] == "causeway.dev/scale-in" for taint in each["spec"].get("taints") or ())
        )

    def _all(self, resource: str) -> Sequence[dict[str, Any]]:
        return [each for (kind, _, _), each in sorted(self.api.objects.items()) if kind == resource]


@contextmanager
def staged(aws: EmbeddedAws, folder: Path, *groups: Group, **more: Any) -> Iterator[Stage]:
    """A stage with these groups; ``more``: fields of the configuration."""
    config = make.config(*(groups or map(make.group, make.REGIONS)), **more)
    with serving() as api:
        api.put("/api/v1/namespaces", {"metadata": {"name": "user-ada"}})
        stage = Stage(aws, api, config, api.kubeconfig(folder))
        with mock.patch("infra.localaws.extensions.scaling_activities._now", stage.moment):
            aws.make(*config.groups)
            api.requests.clear()
            try:
                yield stage
            finally:
                for player in stage.players:
                    player.end()
