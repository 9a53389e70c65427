"""Two clusters to test against: one in this process, and a real API server."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from infra.autoscaler.kube.client import MERGE, Client
from infra.autoscaler.kube.credentials import Credentials
from infra.autoscaler.kube.watching import Timing

Object = dict[str, Any]

FAST = Timing(
    first=0.02, most=0.1, absent=0.1, grace=0.3, silence=0.2, watch=60.0, list=5.0, settled=0.2, stale=0.5
)
"""Everything sooner than in earnest."""

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def even() -> float:
    """Chance, without any."""
    return 0.5


@dataclass
class Page:
    version: str
    next_token: str | None
    objects: dict[str, Any]
    faults: dict[str, str] = field(default_factory=dict)


class Plain:
    """Objects as they are; one that is labelled ``bad`` makes no sense."""

    def list(self, kind: str, body: bytes) -> Page:
        decoded = msgspec.json.decode(body)
        page = Page(decoded["metadata"]["resourceVersion"], decoded["metadata"].get("continue"), {})
        for item in decoded["items"]:
            if "bad" in (item["metadata"].get("labels") or {}):
                page.faults[key(item)] = "bad"
            else:
                page.objects[key(item)] = item
        return page

    def item(self, kind: str, raw: bytes) -> tuple[str, Any, str]:
        item = msgspec.json.decode(raw)
        if "bad" in (item["metadata"].get("labels") or {}):
            raise ValueError("bad")
        return key(item), item, item["metadata"]["resourceVersion"]


def key(item: Object) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


@dataclass
class Cluster:
    """An API and an administrator's way to it."""

    kubeconfig: Path
    client: Client

    @classmethod
    def of(cls, kubeconfig: Path, **more: Any) -> Cluster:
        return cls(kubeconfig, Client(Credentials(kubeconfig), chance=even, **more))

    def create(self, path: str, body: Object) -> Object:
        created: Object = msgspec.json.decode(self.client.call("POST", path, body=body))
        return created

    def get(self, path: str) -> Object | None:
        body = self.client.find(path)
        return None if body is None else msgspec.json.decode(body)

    def patch(self, path: str, body: Object) -> Object:
        changed: Object = msgspec.json.decode(self.client.call("PATCH", path, body=body, content=MERGE))
        return changed

    def delete(self, path: str) -> None:
        self.client.call("DELETE", path)

    def node(self, **body: Any) -> Object:
        return self.create("/api/v1/nodes", {"metadata": {"name": fresh("node")}, **body})

    def pod(self, *, on: str = "", phase: str = "Running", **meta: Any) -> Object:
        created = self.create(
            PODS,
            {
                "metadata": {"name": fresh("pod"), **meta},
                "spec": {
                    "containers": [{"name": "main", "image": "none"}],
                    "terminationGracePeriodSeconds": 0,
                    **({"nodeName": on} if on else {}),
                },
            },
        )
        return self.patch(f"{PODS}/{created['metadata']['name']}/status", {"status": _status(phase)})

    def budget(self, labels: dict[str, str], allowed: int) -> Object:
        created = self.create(
            BUDGETS,
            {
                "metadata": {"name": fresh("budget")},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
            },
        )
        return self.allow(created["metadata"]["name"], allowed)

    def allow(self, budget: str, allowed: int) -> Object:
        """As the disruption controller would."""
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 2,
        }
        return self.patch(f"{BUDGETS}/{budget}/status", {"status": status})


def _status(phase: str) -> Object:
    ready = "True" if phase == "Running" else "False"
    return {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}


def fresh(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:8]}"
