"""A real API server, and a scheduler where there is one, that know a cluster's classes, rules and people.

Nodes are what a test says they are, and nobody runs what the scheduler places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kube.api import MERGE, Api, RefusedError, path_of, refused
from kube.plane import Plane, planes
from waiting import until

from infra.model import Cluster
from infra.render.kubernetes import objects

GPUS = "nvidia.com/gpu"


@contextmanager
def world(cluster: Cluster, folder: Path) -> Iterator[Plane]:
    """With everything applied; skips where there is no API server."""
    with planes(folder) as here:
        for part in ("namespaces", "scheduling", "access"):
            documents = objects(part, cluster)
            here.admin.apply_all(documents)
            for each in (each for some in documents.values() for each in some):
                if each["kind"] == "ResourceQuota":
                    # What the controller of quotas, which is not there, says of an empty namespace.
                    hard = each["spec"]["hard"]
                    here.admin.status(path_of(each), {"hard": hard, "used": dict.fromkeys(hard, "0")})
        in_force(here)
        yield here


def in_force(here: Plane) -> None:
    """Waits until the API server has heard of the rules: it watches them like everybody else."""
    forms: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (dict, job)
    for form in forms:
        until(partial(_in_force, here.admin, form))


def _in_force(admin: Api, form: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    try:
        made = admin.create(form(pod("x", "user-ada", gpus=1, of="low")), dry=True)
    except RefusedError:
        return False
    past_the_scheduler = form(pod("x", "user-ada", nodeName="x"))
    return "affinity" in inside(made) and refused(admin.create, past_the_scheduler, dry=True) is not None


def placed(admin: Api, each: dict[str, Any]) -> str | None:
    """The node that the scheduler chose; None once it says that there is none."""

    def look() -> str | None:
        pod = admin.call("GET", path_of(each))
        if node := pod["spec"].get("nodeName"):
            return str(node)
        conditions = {it["type"]: it for it in pod.get("status", {}).get("conditions", [])}
        scheduled = conditions.get("PodScheduled", {})
        return "" if scheduled.get("reason") == "Unschedulable" else None

    return until(look, lambda seen: seen is not None) or None


# -- What is in it ------------------------------------------------------------------------------------------


def node(name: str, labels: dict[str, str], *, gpus: int = 0, taint: str = "") -> dict[str, Any]:
    """A node of eight processors that is ready."""
    amount = {"cpu": "8", "memory": "64Gi", "pods": "110", **({GPUS: str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}] if taint else []},
        "status": {
            "allocatable": amount,
            "capacity": amount,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def add(admin: Api, each: dict[str, Any]) -> None:
    """A node as its kubelet would bring it; admission has it wait for its network, which is there."""
    admin.create(each)
    admin.call("PATCH", path_of(each), {"spec": {"taints": each["spec"]["taints"]}}, MERGE)
    admin.status(path_of(each), each["status"])


def pod(name: str, namespace: str, *, gpus: int = 0, of: str = "", **spec: Any) -> dict[str, Any]:
    """Work of class ``of`` that asks for one processor, and for GPUs."""
    limits = {GPUS: str(gpus)} if gpus else {}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}, "limits": limits}}
    chosen = {"priorityClassName": of} if of else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **chosen, **spec},
    }


def job(of: dict[str, Any]) -> dict[str, Any]:
    """The same work as a job."""
    template = {"spec": {**of["spec"], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": of["metadata"],
        "spec": {"template": template},
    }


def inside(each: dict[str, Any]) -> dict[str, Any]:
    """The pod's specification, of a pod or a job."""
    spec: dict[str, Any] = each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"]
    return spec
