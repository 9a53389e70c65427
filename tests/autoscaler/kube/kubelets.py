"""What would run on the machines: each instance that AWS has gets its node, and pods bound there run.

They do what kubelets do to the API, and no more: register, become ready, find their GPUs a little later, run
pods to their end, let go of those that are to go, and fall silent when their machine is no more.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from autoscaler.embedded import EmbeddedAws
from autoscaler.kube.clusters import Cluster, Object

from infra.autoscaler.config import Group
from infra.autoscaler.kube.client import KubeError
from infra.autoscaler.observed.snapshot import GPU

SECONDS = "test.causeway.dev/seconds"
"""The annotation that says how long a pod runs; it runs for ever without."""

_NODES = "/api/v1/nodes"
_TICK = 0.3
_LONG = 300.0
"""Seconds for which a node that falls silent is said to have been so: its deletion is not waited for."""


class Kubelets:
    """All of them, in one thread."""

    def __init__(
        self, cluster: Cluster, aws: EmbeddedAws, groups: Sequence[Group], *, boot: float, gpus: float
    ) -> None:
        """``boot``: seconds until a machine joins; ``gpus``: from then until its GPUs are there."""
        self._cluster = cluster
        self._aws = aws
        self._groups = groups
        self._boot = boot
        self._gpus = gpus
        self._born: dict[str, float] = {}
        self._stages: dict[str, str] = {}
        self._silent: dict[str, float] = {}
        """Nodes of machines that are gone, and when that is noticed."""
        self._ends: dict[str, float] = {}
        """Uid of a pod → when it ends, by the monotonic clock."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(_TICK):
            try:
                self._machines()
                self._pods()
            except KubeError:
                pass  # again in a moment, as kubelets do
            except Exception:
                logging.getLogger(__name__).exception("a kubelet failed; it goes on")

    # Machines.

    def _machines(self) -> None:
        present = set()
        for group in self._groups:
            for state in list(self._aws.group(group).instance_states):
                name = state.instance.id
                present.add(name)
                age = time.monotonic() - self._born.setdefault(name, time.monotonic())
                self._further(group, name, age)
        for name in [each for each in self._stages if each not in present]:
            del self._stages[name]
            self._silent[name] = time.monotonic() + self._boot
        for name in [each for each, since in self._silent.items() if time.monotonic() > since]:
            with suppress(KubeError):
                self._status(name, "Unknown", None, since=_LONG)
            del self._silent[name]

    def _further(self, group: Group, name: str, age: float) -> None:
        """The next stage of a machine's life, if it is time."""
        stage = self._stages.get(name, "")
        gpus = GPU in group.allocatable
        if not stage and age > self._boot:
            self._register(group, name)
            self._stages[name] = "registered"
        elif stage == "registered":
            self._status(name, "True", {k: v for k, v in group.allocatable.items() if k != GPU})
            self._untaint(name)
            self._stages[name] = "ready"
        elif stage == "ready" and gpus and age > self._boot + self._gpus:
            self._status(name, "True", group.allocatable)
            self._stages[name] = "complete"

    def _register(self, group: Group, name: str) -> None:
        zone = group.zones[0]
        taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in group.taints]
        labels = {
            **group.labels,
            "topology.kubernetes.io/zone": zone,
            "node.kubernetes.io/instance-type": group.types[0].name,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        self._cluster.create(
            _NODES,
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": f"aws:///{zone}/{name}", "taints": taints},
            },
        )

    def _status(self, name: str, ready: str, offers: Any, since: float = 0.0) -> None:
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": _stamp(since), "reason": "Test"}
        status: dict[str, Any] = {"conditions": [condition]}
        if offers is not None:
            amounts = {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in offers.items()}
            status |= {"allocatable": amounts, "capacity": amounts}
        self._cluster.patch(f"{_NODES}/{name}/status", {"status": status})

    def _untaint(self, name: str) -> None:
        """What admission has put on a node that was not ready yet."""
        node = self._cluster.get(f"{_NODES}/{name}")
        assert node is not None
        taints = [
            each for each in node["spec"].get("taints", ()) if each["key"] != "node.kubernetes.io/not-ready"
        ]
        version = node["metadata"]["resourceVersion"]
        self._cluster.patch(
            f"{_NODES}/{name}", {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
        )

    # Pods.

    def _pods(self) -> None:
        pods = self._cluster.get("/api/v1/pods")
        assert pods is not None
        for pod in pods["items"]:
            if pod["spec"].get("nodeName") in self._stages:
                self._pod(pod)

    def _pod(self, pod: Object) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase", "Pending")
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            uid = {"preconditions": {"uid": meta["uid"]}}
            with suppress(KubeError):
                self._cluster.client.call("DELETE", path, body={"gracePeriodSeconds": 0, **uid})
        elif phase == "Pending":
            self._cluster.patch(f"{path}/status", {"status": _state("Running")})
            if lasts := (meta.get("annotations") or {}).get(SECONDS):
                self._ends[meta["uid"]] = time.monotonic() + float(lasts)
        elif time.monotonic() > self._ends.get(meta["uid"], math.inf):
            self._cluster.patch(f"{path}/status", {"status": _state("Succeeded")})
            del self._ends[meta["uid"]]


def _state(phase: str) -> Object:
    ready = "True" if phase == "Running" else "False"
    return {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": _stamp()}],
    }


def _stamp(ago: float = 0.0) -> str:
    return datetime.fromtimestamp(time.time() - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
