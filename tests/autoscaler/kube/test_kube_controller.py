"""The whole controller at either API: from pods that wait to machines that end, and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from autoscaler import make
from autoscaler.embedded import EmbeddedAws
from autoscaler.kube.clusters import BUDGETS, PODS, Cluster, until

from infra.autoscaler import assembly
from infra.autoscaler.aws.clients import Clients, Patience
from infra.autoscaler.loop import Cycle, Loop
from infra.autoscaler.observed.snapshot import GPU

SYSTEM = "/api/v1/namespaces/causeway-system"
GROUP = make.group()
CONFIG = make.config(GROUP)


class Stage:
    """A controller, and what a scheduler and kubelets would do."""

    def __init__(self, cluster: Cluster, aws: EmbeddedAws) -> None:
        self.cluster = cluster
        self.aws = aws
        self.now = float(int(time.time()))
        clients = Clients(Patience(1.0, 10.0, 2))
        self.side = assembly.Cluster(CONFIG, cluster.kubeconfig)
        self.loop: Loop = assembly.controller(
            CONFIG, self.side, reading=clients, writing=clients, clock=lambda: self.now
        )
        self.side.watcher.start()
        assert self.side.watcher.wait(60)
        self.side.lease.start()
        until(self.side.lease.held, 60)

    def turn(self, seconds: float = 0.0) -> Cycle:
        self.now += seconds
        until(lambda: all(self._seen(kind) == self._there(kind) for kind in ("nodes", "pods")))
        cycle = self.loop.once()
        assert cycle.error is None
        return cycle

    def _there(self, kind: str) -> set[str]:
        found = self.cluster.get(f"/api/v1/{kind}")
        assert found is not None
        return {each["metadata"]["resourceVersion"] for each in found["items"]}

    def _seen(self, kind: str) -> set[str]:
        objects = self.side.watcher.parts().objects[{"nodes": "Node", "pods": "Pod"}[kind]]
        return {each.version for each in objects.values()}

    def waiting(self, name: str) -> None:
        self.cluster.create(PODS, {"metadata": {"name": name}, "spec": _spec()})

    def running(self, name: str, node: str) -> None:
        """A pod that waited now runs."""
        self.cluster.delete(f"{PODS}/{name}")
        made = {"metadata": {"name": name}, "spec": {**_spec(), "nodeName": node}}
        self.cluster.create(PODS, made)
        self.cluster.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})

    def join(self, instance: str) -> None:
        """An instance's kubelet registers it."""
        labels = {
            **GROUP.labels,
            "topology.kubernetes.io/zone": GROUP.zones[0],
            "node.kubernetes.io/instance-type": GROUP.types[0].name,
            "kubernetes.io/hostname": instance,
        }
        taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in GROUP.taints]
        provider = f"aws:///{GROUP.zones[0]}/{instance}"
        self.cluster.create(
            "/api/v1/nodes",
            {"metadata": {"name": instance, "labels": labels}, "spec": {"providerID": provider}},
        )
        # A real API adds a taint of its own until the node is ready; nobody is there to take it off.
        self.cluster.patch(f"/api/v1/nodes/{instance}", {"spec": {"taints": taints}})
        offers = {
            key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in GROUP.allocatable.items()
        }
        self.ready(instance, "True", capacity=offers, allocatable=offers)

    def ready(self, node: str, status: str, **more: Any) -> None:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now))
        condition = {
            "type": "Ready", "status": status, "reason": "a", "message": "",
            "lastTransitionTime": since, "lastHeartbeatTime": since,
        }  # fmt: skip
        body = {"status": {"conditions": [condition], **more}}
        self.cluster.patch(f"/api/v1/nodes/{node}/status", body)

    def taints(self, node: str) -> set[str]:
        found = self.cluster.get(f"/api/v1/nodes/{node}")
        assert found is not None
        return {each["key"] for each in found["spec"].get("taints") or ()}


def _spec() -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", GPU: "4"}, "limits": {GPU: "4"}}
    return {
        "containers": [{"name": "main", "image": "none", "resources": resources}],
        "tolerations": [{"key": GPU, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }


@pytest.fixture
def stage(cluster: Cluster, aws: EmbeddedAws) -> Iterator[Stage]:
    aws.make(GROUP)
    for path in ("/api/v1/pods", "/api/v1/nodes", BUDGETS):
        found = cluster.get(path)
        for each in found["items"] if found else ():
            meta = each["metadata"]
            folder = path.replace("/api/v1/pods", f"/api/v1/namespaces/{meta.get('namespace')}/pods")
            cluster.delete(f"{folder}/{meta['name']}")
    for namespace in ("causeway-system", "default"):
        cluster.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
    made = Stage(cluster, aws)
    yield made
    made.side.stop()
    cluster.delete(f"{SYSTEM}/configmaps/autoscaler-memory")


def test_from_pods_that_wait_to_machines_that_end(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.waiting(name)
    stage.turn()
    assert stage.aws.group(GROUP).desired_capacity == 2
    kept = stage.cluster.get(f"{SYSTEM}/configmaps/autoscaler-memory")
    assert kept is not None
    assert GROUP.name in kept["data"]["memory.json"]
    events = stage.cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")
    assert events is not None
    told = {each["regarding"]["name"]: each for each in events["items"]}
    assert {"one", "two"} <= told.keys()
    assert told["one"]["reason"] == "MachineStarts"
    assert stage.turn(10).results == ()

    machines = stage.aws.instances(GROUP)
    for name, machine in zip(("one", "two"), machines, strict=True):
        stage.join(machine)
        stage.running(name, machine)
    assert stage.turn(10).results == ()

    stage.cluster.delete(f"{PODS}/one")
    stage.turn(10)
    stage.turn(601)
    assert "causeway.dev/scale-in" in stage.taints(machines[0])
    assert "causeway.dev/scale-in" not in stage.taints(machines[1])
    for _ in range(3):
        stage.turn(31)
    assert stage.aws.instances(GROUP) == machines[1:]
    assert stage.aws.group(GROUP).desired_capacity == 1

    stage.ready(machines[0], "Unknown")
    stage.turn(130)
    assert stage.cluster.get(f"/api/v1/nodes/{machines[0]}") is None
    assert stage.cluster.get(f"/api/v1/nodes/{machines[1]}") is not None
    assert stage.cluster.get(f"{PODS}/two") is not None
    assert stage.turn(10).results == ()
