"""Drains nodes, respecting disruption budgets, and removes them from the cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.drive.kubernetes import status
from infra.drive.kubernetes.api import Api, ApiError
from infra.drive.kubernetes.kubectl import Kubectl, KubectlError
from infra.drive.kubernetes.status import ETCDCTL, Member
from infra.errors import DriveError, UsageError

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""RFC 1123: the format of node names."""

DRAIN: Final = 900
"""Seconds that a drain waits for pods by default."""

_ROUNDS: Final = 5
"""Attempts to update a node after a conflict with another writer."""

RESET: Final = """\
set -u
if command -v kubeadm >/dev/null; then kubeadm reset --force >&2; code=$?; else code=0; fi
# kubeadm leaves these in place. The CNI bridge keeps an address of the node's pod range: a machine that joins
# again gets another range, and no pod would start on it.
for link in cni0 flannel.1; do ip link delete "$link" 2>/dev/null; done
rm -rf /etc/cni/net.d/* /var/lib/cni/* /run/flannel
rm -rf /var/lib/causeway/kubernetes-upgrade /etc/kubernetes/kubeadm-unfinished
rm -f /etc/causeway/secrets/kubernetes-join.yaml
exit $code
"""
"""A script for the machine: it stops being a node. A master's etcd member is removed too (``kubeadm reset``,
remove-etcd-member)."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A reason why a pod cannot be evicted."""

    pod: str
    """``namespace/name``."""
    why: str

    def __str__(self) -> str:
        return f"{self.pod}: {self.why}"


def require(api: Api, name: str) -> dict[str, Any]:
    """A node. Raises ``UsageError``, naming the existing ones, if it does not exist."""
    # An empty name would select the list of nodes.
    found = api.find(f"/api/v1/nodes/{name}") if _NAME.fullmatch(name) else None
    if found is None:
        from infra.nearest import meant_one_of

        known = [str(each["metadata"]["name"]) for each in api.list("/api/v1/nodes")]
        raise UsageError(f"{name or repr(name)}: no such node; {meant_one_of(name, known)}")
    return found


def blockers(api: Api, name: str) -> list[Blocker]:
    """The pods of a node that block a drain: those whose PodDisruptionBudget allows no disruption now, and
    those without a controller."""
    budgets = [each for each in api.list("/apis/policy/v1/poddisruptionbudgets") if not _allowed(each)]
    found = []
    for pod in api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={name}"):
        about = pod["metadata"]
        where = f"{about['namespace']}/{about['name']}"
        phase = (pod.get("status") or {}).get("phase")
        if _stays(pod) or phase in {"Succeeded", "Failed"} or about.get("deletionTimestamp"):
            continue
        if not about.get("ownerReferences"):
            found.append(Blocker(where, "no controller brings it back; --force deletes it"))
        found += [
            Blocker(where, f"the budget {budget['metadata']['name']} allows no disruption now")
            for budget in budgets
            # The Eviction API ignores the budget for a pod that has not started.
            if phase == "Running"
            and budget["metadata"]["namespace"] == about["namespace"]
            and selects((budget.get("spec") or {}).get("selector"), about.get("labels") or {})
        ]
    return found


def of_instances(api: Api, instances: Collection[str]) -> dict[str, str]:
    """Instance id → the name of its node, if it is one (``spec.providerID``:
    ``aws:///us-west-2a/i-0123456789abcdef0``)."""
    found = {}
    for node in api.list("/api/v1/nodes"):
        instance = str((node.get("spec") or {}).get("providerID") or "").rpartition("/")[2]
        if instance in instances:
            found[instance] = str(node["metadata"]["name"])
    return found


def work(api: Api, instances: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Instance id → the pods on its node that a drain would evict, as ``namespace/name``."""
    names = {name: instance for instance, name in of_instances(api, instances).items()}
    found: dict[str, list[str]] = {}
    for pod in api.list("/api/v1/pods") if names else ():
        instance = names.get(str((pod.get("spec") or {}).get("nodeName") or ""))
        if instance is not None and is_work(pod):
            about = pod["metadata"]
            found.setdefault(instance, []).append(f"{about['namespace']}/{about['name']}")
    return {instance: tuple(sorted(pods)) for instance, pods in found.items()}


def is_work(pod: Mapping[str, Any]) -> bool:
    """Whether a drain would evict a pod: it has not finished, and is neither of a DaemonSet nor static."""
    return not _stays(pod) and (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches. An empty selector matches everything, None matches nothing
    (policy/v1)."""
    if selector is None:
        return False
    plain = (selector.get("matchLabels") or {}).items()
    return all(labels.get(key) == value for key, value in plain) and all(
        _meets(each, labels) for each in selector.get("matchExpressions") or []
    )


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in (expression.get("values") or [])
        case "NotIn":
            return value not in (expression.get("values") or [])
        case "Exists":
            return value is not None
        case _:
            return value is None


def _allowed(budget: Mapping[str, Any]) -> bool:
    return int((budget.get("status") or {}).get("disruptionsAllowed") or 0) > 0


def _stays(pod: Mapping[str, Any]) -> bool:
    """Whether a drain leaves the pod: DaemonSets' pods would return immediately, static pods are the
    kubelet's."""
    about = pod["metadata"]
    owners = about.get("ownerReferences") or []
    return any(each.get("kind") == "DaemonSet" for each in owners) or (
        "kubernetes.io/config.mirror" in (about.get("annotations") or {})
    )


def drain(
    kubectl: Kubectl,
    name: str,
    *,
    seconds: int = DRAIN,
    grace: int = -1,
    force: bool = False,
    ignore_budgets: bool = False,
    on_line: Callable[[str], None] = lambda _line: None,
) -> None:
    """Cordon a node and evict its pods, respecting PodDisruptionBudgets. Raises ``DriveError`` after
    ``seconds``; the node then stays cordoned.

    ``grace``: seconds for each pod to terminate; -1: its own grace period. ``force``: also evict pods
    without a controller.
    """
    try:
        kubectl.follow(
            "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={seconds}s",
            f"--grace-period={grace}",
            *(["--force"] if force else []), *(["--disable-eviction"] if ignore_budgets else []),
            on_line=on_line,
        )  # fmt: skip
    except KubectlError as problem:
        raise DriveError(f"{name} could not be drained, and stays cordoned:\n{problem.output}") from None


def cordoned(api: Api, name: str) -> bool:
    """Whether a node is unschedulable."""
    return bool((api.get(f"/api/v1/nodes/{name}").get("spec") or {}).get("unschedulable"))


def cordon(kubectl: Kubectl, name: str) -> None:
    """Mark a node unschedulable."""
    kubectl.run("cordon", name)


def uncordon(kubectl: Kubectl, name: str) -> None:
    """Mark a node schedulable."""
    kubectl.run("uncordon", name)


def require_silent(node: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` if the node's kubelet still reports: the machine is not off."""
    name = node["metadata"]["name"]
    ready = status.condition(node, "Ready")
    if ready == "True":
        raise UsageError(f"{name} is ready: its machine is not off; `invoke cluster.drain {name}` empties it")
    if ready != "Unknown":
        raise UsageError(
            f"{name} is not ready, but its kubelet still reports: power the machine off, and wait a minute"
        )


def take_out_of_service(api: Api, name: str) -> None:
    """Add the out-of-service taint to a node whose machine is off. Raises ``UsageError`` if its kubelet
    reports."""

    def declared(node: Mapping[str, Any]) -> list[dict[str, Any]]:
        require_silent(node)
        taint = {"key": status.OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        return [*_other_taints(node), taint]

    _retaint(api, name, declared)


def return_to_service(api: Api, name: str) -> None:
    """Remove the out-of-service taint, if present."""
    if status.out_of_service(require(api, name)):
        _retaint(api, name, _other_taints)


def _other_taints(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    taints = (node.get("spec") or {}).get("taints") or []
    return [each for each in taints if each["key"] != status.OUT_OF_SERVICE]


def _retaint(api: Api, name: str, taints: Callable[[Mapping[str, Any]], list[dict[str, Any]]]) -> None:
    """Replace a node's taints, computed from those at the time of writing, as other clients write the list
    too."""
    for _ in range(_ROUNDS):
        node = require(api, name)
        about = {"resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            api.patch(f"/api/v1/nodes/{name}", {"metadata": about, "spec": {"taints": taints(node)}})
        except ApiError as problem:
            if problem.code != 409:
                raise
        else:
            return
    raise DriveError(f"{name} is written by others all the time; run this again")


def pods_at_work(api: Api, name: str) -> list[str]:
    """The pods of a node that a drain would evict, as ``namespace/name``."""
    return sorted(
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
        if is_work(each)
    )


def delete(api: Api, name: str) -> bool:
    """Delete a Node object; its pods are then deleted too. False if it did not exist."""
    return api.delete(f"/api/v1/nodes/{name}")


def require_quorum(members: list[Member], leaving: str) -> None:
    """Raise ``UsageError`` if etcd would lose its quorum, or its last member, without the master
    ``leaving``."""
    left = [each for each in members if each.name != leaving]
    if len(left) == len(members):
        return
    well = sum(each.healthy for each in left)
    if not left:
        raise UsageError(f"{leaving} holds all there is of the cluster: it can't be removed")
    if well <= len(left) // 2:
        raise UsageError(
            f"without {leaving}, {well} of {len(left)} members of etcd would be healthy, not a majority: "
            "bring the others back first"
        )


def forget_member(kubectl: Kubectl, through: str, name: str) -> bool:
    """Remove a lost master from etcd, through the etcd pod of another master. False if it was not a
    member."""
    # etcdctl's default timeout of 5 s is too short during a leader election.
    inside = ("exec", "--namespace=kube-system", through, "--", *ETCDCTL, "--command-timeout=30s")
    members = json.loads(kubectl.run(*inside, "member", "list", "--write-out=json"))["members"]
    for each in members:
        if each.get("name") == name:
            kubectl.run(*inside, "member", "remove", f"{int(each['ID']):x}")
            return True
    return False


def reach_through(api: Api, leaving: str) -> str | None:
    """A ready etcd pod on another master."""
    for pod in _etcd_pods(api):
        if (pod.get("spec") or {}).get("nodeName") != leaving and status.condition(pod, "Ready") == "True":
            return str(pod["metadata"]["name"])
    return None


def _etcd_pods(api: Api) -> Iterator[dict[str, Any]]:
    yield from api.list("/api/v1/namespaces/kube-system/pods", labelSelector="component=etcd")
