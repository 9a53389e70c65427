"""The cluster's status from its API, in a few calls: masters, nodes, GPUs, unavailable workloads."""

from __future__ import annotations

import json
import ssl
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from infra.catalogue import labels
from infra.drive import clock
from infra.drive.kubernetes.access import Access
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.kubectl import Kubectl
from infra.errors import DriveError

MASTER: Final = "node-role.kubernetes.io/control-plane"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""Kubernetes' taint of a node whose machine is off ("Non-graceful node shutdown handling"): its pods are
deleted without its kubelet, and their volumes detached immediately."""
CORDONED_FOR: Final = "causeway/gpu-health"
"""The annotation with the reason why a machine cordoned its own node (cookbook ``gpu``)."""
GPU: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared")

ETCDCTL: Final = (
    "etcdctl", "--endpoints=https://127.0.0.1:2379", "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
    "--cert=/etc/kubernetes/pki/etcd/healthcheck-client.crt",
    "--key=/etc/kubernetes/pki/etcd/healthcheck-client.key",
)  # fmt: skip
"""etcdctl with the options of kubeadm's probe (static pod of etcd)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node."""

    name: str
    site: str
    pool: str
    """Empty for a machine outside of any pool."""
    master: bool
    ready: bool
    cordoned: bool
    out_of_service: bool
    """Whether it has the out-of-service taint."""
    sick: str
    """What is wrong with its GPUs, from ``sick``; empty if healthy."""
    version: str
    model: str
    gpu_class: str
    gpus: int
    used: int

    @property
    def state(self) -> str:
        if not self.ready:
            return "not ready"
        return "sick" if self.sick else "cordoned" if self.cordoned or self.out_of_service else "ready"


@dataclass(frozen=True, slots=True)
class Member:
    """An etcd member and its own status."""

    name: str
    """The name of its master."""
    endpoint: str
    healthy: bool
    leader: bool
    version: str
    size_mib: float
    learner: bool


def ready(node: Mapping[str, Any]) -> bool:
    """Whether a node's condition Ready is True."""
    return condition(node, "Ready") == "True"


def condition(thing: Mapping[str, Any], kind: str) -> str:
    """The status of a condition: ``True``, ``False``, ``Unknown``; empty where there is none."""
    return str(_condition(thing, kind).get("status") or "")


def _condition(thing: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for each in (thing.get("status") or {}).get("conditions") or []:
        if each.get("type") == kind:
            found: Mapping[str, Any] = each
            return found
    return {}


def sick(node: Mapping[str, Any]) -> str:
    """Why a node takes no new work: GPUs are sick, or scratch space is missing. Empty if healthy.

    With Node Feature Discovery the node is tainted, and node-problem-detector's condition has the reason.
    Without it the machine cordons its node and sets an annotation and a condition (cookbook ``gpu``). They
    are written by different programs at different times: any one of them suffices.
    """
    if why := ((node.get("metadata") or {}).get("annotations") or {}).get(CORDONED_FOR):
        return str(why)
    for kind, bad in ((labels.GPU_SICK_CONDITION, "True"), ("GpuHealthy", "False")):
        said = _condition(node, kind)
        if said.get("status") == bad:
            return str(said.get("message") or "GPU")
    keys = {each.get("key") for each in (node.get("spec") or {}).get("taints") or []}
    known = {labels.GPU_SICK: "GPU", labels.SCRATCH_MISSING: "no scratch space"}
    return next((why for key, why in known.items() if key in keys), "")


def out_of_service(node: Mapping[str, Any]) -> bool:
    """Whether a node has the out-of-service taint."""
    taints = (node.get("spec") or {}).get("taints") or []
    return any(each.get("key") == OUT_OF_SERVICE for each in taints)


def repels(node: Mapping[str, Any]) -> bool:
    """Whether a node accepts only pods that tolerate its taints."""
    return any(
        each.get("effect") in {"NoSchedule", "NoExecute"}
        for each in (node.get("spec") or {}).get("taints") or []
    )


def nodes(api: Api) -> list[Node]:
    """Every node, with the number of its GPUs that pods request."""
    used: Counter[str] = Counter()
    for pod in api.list("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed"):
        where = (pod.get("spec") or {}).get("nodeName")
        if where:
            used[where] += _asked(pod)
    return [_node(each, used[str(each["metadata"]["name"])]) for each in api.list("/api/v1/nodes")]


def _node(node: Mapping[str, Any], used: int) -> Node:
    about = node["metadata"]
    named = about.get("labels") or {}
    spec, status = node.get("spec") or {}, node.get("status") or {}
    offered = status.get("allocatable") or {}
    return Node(
        name=str(about["name"]),
        site=str(named.get(labels.SITE, "")),
        pool=str(named.get(labels.POOL, "")),
        master=MASTER in named,
        ready=ready(node),
        cordoned=bool(spec.get("unschedulable")),
        out_of_service=out_of_service(node),
        sick=sick(node),
        version=str((status.get("nodeInfo") or {}).get("kubeletVersion", "")),
        model=str(named.get(labels.GPU_MODEL, "")),
        gpu_class=str(named.get(labels.GPU_CLASS, "")),
        gpus=sum(int(offered.get(name, 0)) for name in GPU),
        used=used,
    )


def _asked(pod: Mapping[str, Any]) -> int:
    """GPUs that a pod holds. Init containers run before the others, except sidecars."""
    spec = pod.get("spec") or {}
    running = sum(map(_gpus, spec.get("containers") or []))
    peak = 0
    stay = 0
    for each in spec.get("initContainers") or []:
        if each.get("restartPolicy") == "Always":
            stay += _gpus(each)
        else:
            peak = max(peak, stay + _gpus(each))
    return max(running + stay, peak)


def _gpus(container: Mapping[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(limits.get(name, 0)) for name in GPU)


def by_place(found: Iterable[Node]) -> list[dict[str, Any]]:
    """A row per site and pool: the number of nodes, and their states."""
    rows: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for each in found:
        rows[each.site, "masters" if each.master else each.pool or "-"].append(each)
    return [
        {
            "site": site or "-",
            "pool": pool,
            "nodes": len(group),
            **{state.replace(" ", "_"): sum(each.state == state for each in group) for state in _STATES},
            "versions": sorted({each.version for each in group}),
        }
        for (site, pool), group in sorted(rows.items())
    ]


_STATES: Final = ("ready", "not ready", "cordoned", "sick")


def by_gpu(found: Iterable[Node]) -> list[dict[str, Any]]:
    """A row per GPU model: total, in use, free, and on unschedulable nodes."""
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for each in found:
        if each.gpus:
            row = rows[each.gpu_class or "-", each.model or "-"]
            row["total"] += each.gpus
            row["used"] += each.used
            row["free" if each.state == "ready" else "out"] += max(each.gpus - each.used, 0)
    return [
        {
            "class": kind,
            "model": model,
            "total": row["total"],
            "used": row["used"],
            "free": row["free"],
            "out": row["out"],
        }
        for (kind, model), row in sorted(rows.items())
    ]


def etcd(api: Api, kubectl: Kubectl) -> list[Member] | str:
    """The members of etcd, queried through one of them; or the reason why that is not possible."""
    pods = api.list("/api/v1/namespaces/kube-system/pods", labelSelector="component=etcd")
    names = [str(each["metadata"]["name"]) for each in pods if condition(each, "Ready") == "True"]
    if not names:
        return "no pod of etcd is ready"
    said = ""
    for name in names:
        try:
            inside = ("exec", "--namespace=kube-system", name, "--", *ETCDCTL)
            # etcdctl's default timeout of 5 s is too short during a leader election.
            listing = ("--command-timeout=30s", "member", "list", "--write-out=json")
            listed = json.loads(kubectl.run(*inside, *listing))["members"]
            named = {int(each["ID"]): each for each in listed}
            # It fails if members do not answer, but still prints the others.
            text = kubectl.run(*inside, "endpoint", "status", "--cluster", "--write-out=json", fail=False)
            return _members(named, json.loads(text))
        except (DriveError, ValueError, KeyError) as problem:
            said = str(problem).splitlines()[-1]
    return said


def _members(named: Mapping[int, Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> list[Member]:
    """The members that answer, then the others."""
    told = {int(row["Status"]["header"]["member_id"]): row for row in rows}
    found = []
    for ident, each in named.items():
        row = told.get(ident)
        about = row["Status"] if row else {}
        endpoint = str(row["Endpoint"]) if row else ", ".join(each.get("clientURLs") or [])
        found.append(
            Member(
                name=str(each.get("name") or ""),
                endpoint=endpoint,
                healthy=row is not None and not about.get("errors"),
                leader=row is not None and about.get("leader") == ident,
                version=str(about.get("version", "")),
                size_mib=round(int(about.get("dbSize", 0)) / 2**20, 1),
                learner=bool(about.get("isLearner")),
            )
        )
    return found


def unwell(api: Api) -> list[dict[str, Any]]:
    """Workloads in all namespaces with missing pods."""
    rows = []
    for kind, path in (
        ("Deployment", "deployments"),
        ("DaemonSet", "daemonsets"),
        ("StatefulSet", "statefulsets"),
    ):
        for each in api.list(f"/apis/apps/v1/{path}"):
            status = each.get("status") or {}
            if kind == "DaemonSet":
                wanted, has = status.get("desiredNumberScheduled") or 0, status.get("numberAvailable") or 0
            else:
                wanted, has = (
                    (each.get("spec") or {}).get("replicas") or 0,
                    status.get("availableReplicas") or 0,
                )
            if has < wanted:
                about = each["metadata"]
                name = f"{about['namespace']}/{about['name']}"
                rows.append({"kind": kind, "name": name, "available": has, "wanted": wanted})
    return rows


def version(api: Api) -> str:
    """The API server's version: ``v1.36.2``."""
    return str(api.get("/version")["gitVersion"])


def noted(api: Api, name: str) -> Mapping[str, str]:
    """The data of a ConfigMap in kube-system that masters write."""
    found = api.find(f"/api/v1/namespaces/kube-system/configmaps/{name}")
    return (found or {}).get("data") or {}


def serving(access: Access) -> datetime | None:
    """When the API's serving certificate expires; None if unknown."""
    import socket

    from cryptography import x509

    context = ssl.create_default_context(cafile=str(access.folder / "ca.crt"))
    host, _, port = access.endpoint.address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=access.endpoint.name) as tls,
        ):
            data = tls.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None
    return x509.load_der_x509_certificate(data).not_valid_after_utc if data else None


def days_left(moment: datetime) -> int:
    return (moment - clock.now()).days


def crashing(api: Api) -> frozenset[str]:
    """Pods with a container in a crash loop: ``namespace/name``."""
    return frozenset(
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in api.list("/api/v1/pods")
        for each in (pod.get("status") or {}).get("containerStatuses") or []
        if ((each.get("state") or {}).get("waiting") or {}).get("reason") == "CrashLoopBackOff"
    )


def pending(api: Api) -> frozenset[str]:
    """Pods that are not scheduled."""
    return frozenset(
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in api.list("/api/v1/pods", fieldSelector="status.phase=Pending")
        if not (pod.get("spec") or {}).get("nodeName") and not (pod.get("spec") or {}).get("schedulingGates")
    )
