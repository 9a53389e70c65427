"""One master's turn among all: a Lease that only one can hold (coordination.k8s.io/v1).

The API server decides who was first: by the name when it is created, by the resource version when it is taken
over from a holder that has not renewed it for as long as it lasts.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kubernetes_node.command import attempt, run
from kubernetes_node.settings import UTC

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class Lease:
    """A turn, by kubectl."""

    def __init__(self, kubeconfig: Path, namespace: str, name: str, holder: str, seconds: int) -> None:
        self._kubectl = ["kubectl", "--kubeconfig", str(kubeconfig), "--namespace", namespace]
        self._name = name
        self._holder = holder
        self._seconds = seconds

    def take(self) -> bool:
        """Whether it is ours now."""
        text = run(*self._kubectl, "get", "lease", self._name, "--ignore-not-found", "--output", "json")
        there: dict[str, Any] | None = json.loads(text) if text.strip() else None
        if there is not None and not (self._ours(there) or forgotten(there, datetime.now(UTC))):
            return False
        verb = "create" if there is None else "replace"
        body = json.dumps(self._fresh(there))
        return attempt([*self._kubectl, verb, "--filename", "-"], stdin=body).returncode == 0

    def give_back(self) -> None:
        """It has no holder."""
        attempt([*self._kubectl, "delete", "lease", self._name, "--ignore-not-found"])

    def _ours(self, lease: dict[str, Any]) -> bool:
        return bool(lease["spec"].get("holderIdentity") == self._holder)

    def _fresh(self, there: dict[str, Any] | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime(_TIME)
        version = {"resourceVersion": there["metadata"]["resourceVersion"]} if there else {}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, **version},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": self._seconds,
                "acquireTime": now,
                "renewTime": now,
            },
        }


def forgotten(lease: dict[str, Any], now: datetime) -> bool:
    """Whether its holder has not spoken up for as long as it lasts."""
    spec = lease["spec"]
    renewed = datetime.strptime(spec["renewTime"], _TIME).replace(tzinfo=UTC)
    return now > renewed + timedelta(seconds=spec["leaseDurationSeconds"])
