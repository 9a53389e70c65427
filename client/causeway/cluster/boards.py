"""The board of a namespace: a Job that runs TensorBoard (``causeway.board``), and a Service with its name.

The network admits all laptops of the VPN to pods. The board's pages are therefore below a random path, which
is stored in the Job: only members of the namespace may read it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from causeway.board import PORT
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.jobs import queued_job
from causeway.cluster.jobset import TOKEN, access, environment, token_volume
from causeway.cluster.labels import OURS
from causeway.cluster.offer import Offer
from causeway.cluster.runs import items, waiting_for, workload_with
from causeway.cluster.store import ACCOUNT, run_key
from causeway.errors import CausewayError

NAME = "board"
LIFE = 8 * 3600
IDLE = 2 * 3600
"""Seconds without a request after which the board exits."""
_LABEL, _RUNS, _PATH = f"{OURS}/board", f"{OURS}/runs", f"{OURS}/path"
_HOME = "/causeway"
_MEMORY = "2Gi"
_DISK = "20Gi"
"""Space for the copy. A pod that uses more is evicted."""
_WAIT = 120
"""Seconds to wait for the previous board to terminate."""


@dataclass(frozen=True)
class Board:
    """An existing board."""

    namespace: str
    uid: str
    runs: Mapping[str, str]
    """Run → its first worker."""
    path: str
    """Prefix of its pages."""
    has_ended: bool

    @property
    def host(self) -> str:
        return f"{NAME}.{self.namespace}.svc"

    def url(self, host: str, port: int) -> str:
        return f"http://{host}:{port}/{self.path}/"


def job(namespace: str, runs: Mapping[str, str], offer: Offer, path: str) -> dict[str, Any]:
    """Return the Job. ``runs``: run → its first worker."""
    store = offer.store
    places = {
        run: {"folder": f"s3://{store.bucket}/{run_key(namespace, run)}", "first": first}
        for run, first in runs.items()
    }
    own = {
        **access(offer, namespace),
        "HOME": _HOME,
        "CAUSEWAY_RUNS": json.dumps(places),
        "CAUSEWAY_BOARD_PATH": path,
        "CAUSEWAY_IDLE": str(IDLE),
    }
    container = {
        "name": NAME,
        "image": offer.tools,
        "command": ["python", "-m", "causeway.board", _HOME],
        "env": environment(own),
        "ports": [{"name": "http", "containerPort": PORT}],
        # A startup probe only: later probes would count as requests. The first copy may take a while.
        "startupProbe": {
            "httpGet": {"path": f"/{path}/", "port": PORT},
            "periodSeconds": 2,
            "failureThreshold": 1800,
        },
        "resources": {"requests": {"cpu": "500m", "memory": _MEMORY}, "limits": {"memory": _MEMORY}},
        "volumeMounts": [
            {"name": "causeway", "mountPath": _HOME},
            {"name": "token", "mountPath": TOKEN, "readOnly": True},
        ],
    }
    return queued_job(
        namespace, NAME, container, label={_LABEL: "true"},
        annotations={_RUNS: json.dumps(runs), _PATH: path}, account=ACCOUNT,
        volumes=[{"name": "causeway", "emptyDir": {"sizeLimit": _DISK}}, token_volume(offer)],
        life=LIFE, backoffLimit=2, activeDeadlineSeconds=LIFE, ttlSecondsAfterFinished=300,
    )  # fmt: skip


def service(namespace: str, uid: str) -> dict[str, Any]:
    """Return the Service ``http://board.user-ada.svc:6006``, owned by the Job with this ``uid`` and deleted
    with it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "labels": {_LABEL: "true"},
            "ownerReferences": [owner],
        },
        "spec": {
            "selector": {"batch.kubernetes.io/controller-uid": uid},
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
        },
    }


def find(cluster: Cluster, namespace: str) -> Board | None:
    """Find the board of a namespace."""
    found = cluster.find(_job(namespace))
    if found is None or found["metadata"].get("deletionTimestamp"):
        return None
    _check_is_ours(found)
    annotations = found["metadata"]["annotations"]
    ended = {each["type"] for each in found["status"].get("conditions", ()) if each["status"] == "True"}
    return Board(
        namespace,
        found["metadata"]["uid"],
        json.loads(annotations[_RUNS]),
        annotations[_PATH],
        not ended.isdisjoint({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"}),
    )


def start(cluster: Cluster, namespace: str, runs: Mapping[str, str]) -> Board:
    """Create a board, replacing an existing one."""
    stop(cluster, namespace)
    path = secrets.token_urlsafe(16)
    wanted = job(namespace, runs, cluster.offer, path)
    made = cluster.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", wanted)
    uid = made["metadata"]["uid"]
    cluster.call("POST", f"/api/v1/namespaces/{namespace}/services", service(namespace, uid))
    return Board(namespace, uid, runs, path, has_ended=False)


def stop(cluster: Cluster, namespace: str) -> bool:
    """Delete a board and wait until it is gone. Returns whether there was one."""
    paths = (_job(namespace), f"/api/v1/namespaces/{namespace}/services/{NAME}")
    for path in paths:
        if (found := cluster.find(path)) is not None:
            _check_is_ours(found)
    was_there = [_deleted(cluster, path) for path in paths]
    until = time.monotonic() + _WAIT
    while any(cluster.find(path) is not None for path in paths):
        if time.monotonic() > until:
            raise CausewayError(
                f"the board of {namespace} does not stop; kubectl -n {namespace} get jobs,pods"
            )
        time.sleep(0.5)
    return any(was_there)


def _check_is_ours(found: Any) -> None:
    """Raise CausewayError if another object has the board's name."""
    about = found["metadata"]
    if _LABEL not in about.get("labels", {}):
        raise CausewayError(
            f"{about['namespace']} has a {found['kind']} {NAME} that `causeway board` did not make; rename it"
        )


def _deleted(cluster: Cluster, path: str) -> bool:
    """Delete an object; whether it existed."""
    try:
        cluster.call("DELETE", path, {"propagationPolicy": "Foreground"})
    except RefusedError as error:
        if error.code != 404:
            raise
        return False
    return True


def ready_pod(cluster: Cluster, board: Board) -> str | None:
    """Return the board's pod that is ready; None if none is."""
    selector = f"batch.kubernetes.io/controller-uid={board.uid}"
    path = f"/api/v1/namespaces/{board.namespace}/pods"
    for pod in items(cluster, path, labelSelector=selector):
        statuses = pod.get("status", {}).get("containerStatuses", ())
        if any(each["ready"] for each in statuses) and not pod["metadata"].get("deletionTimestamp"):
            return str(pod["metadata"]["name"])
    return None


def waits_for(cluster: Cluster, board: Board) -> str:
    """Return why no pod of the board is ready yet."""
    selector = f"batch.kubernetes.io/controller-uid={board.uid}"
    if next(items(cluster, f"/api/v1/namespaces/{board.namespace}/pods", labelSelector=selector), None):
        return "its pod is starting"
    return waiting_for(NAME, workload_with(cluster, board.namespace, board.uid))


def _job(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{NAME}"
