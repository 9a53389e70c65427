"""Which pods may be evicted voluntarily, and whether there is room for them elsewhere.

As in Cluster Autoscaler, these pods keep their node: pods without a controller, pods whose data would be
lost, pods of kube-system without a budget, and those with ``safe-to-evict: "false"``. In addition, pods that
run to completion or use GPUs are never moved, as their work would be lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from infra.autoscaler.observed import node_affinity
from infra.autoscaler.observed.cluster_state import ClusterState, GroupView, Machine
from infra.autoscaler.observed.selectors import matches
from infra.autoscaler.observed.snapshot import PODS, Budget, Pod, Shape

_SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_NOT: Final = "karpenter.sh/do-not-disrupt"
_REPLACED: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Controllers that replace an evicted pod without loss."""
_LOW: Final = 50
"""Maximum utilization of a machine's CPU and memory, in percent, at which its pods are moved."""


class Budgets:
    """PodDisruptionBudgets by pod."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._by_namespace: defaultdict[str, list[Budget]] = defaultdict(list)
        for budget in budgets:
            self._by_namespace[budget.namespace].append(budget)

    def of(self, pod: Pod) -> list[Budget]:
        """The budgets that cover a pod."""
        return [
            budget
            for budget in self._by_namespace.get(pod.namespace, ())
            if matches(budget.selector, pod.labels)
        ]

    def refuse(self, pod: Pod) -> bool:
        """Whether a budget prevents its eviction now."""
        return any(budget.allowed <= 0 for budget in self.of(pod))


def stays(pod: Pod, budgets: Budgets) -> str | None:
    """Why a pod is never evicted voluntarily, for people; None if it may be."""
    if pod.gang is not None:
        return "is one of a gang"
    if pod.owner is not None and pod.owner.kind == "Job":
        return "runs to an end"
    said = pod.annotations.get(_SAFE)
    if said == "false" or pod.annotations.get(_NOT) == "true":
        return "is annotated to stay"
    if any(name.startswith("nvidia.com/") for name, _ in pod.shape.requests):
        return "holds GPUs"
    if said == "true":
        return None
    if pod.owner is None:
        return "has no owner that would make another"
    if pod.owner.kind not in _REPLACED:
        return f"belongs to a {pod.owner.kind}"
    if pod.local_storage:
        return "keeps data on the node"
    if pod.namespace == "kube-system" and not budgets.of(pod):
        return "is of kube-system and has no budget"
    return None


class Elsewhere:
    """Room on the remaining machines, reduced as pods are moved."""

    def __init__(self, view: ClusterState, without: Iterable[str] = ()) -> None:
        left = {*without}
        self._targets = [
            each for each in view.machines if each.state == "ready" and each.pods and each.name not in left
        ]
        self._groups = view.groups
        self._room: dict[str, dict[str, int]] = {}
        self._fitting: dict[int, tuple[Shape, list[Machine]]] = {}
        self._emptied: set[str] = set()
        self._filled: set[str] = set()

    def take(self, machine: Machine) -> bool:
        """Whether all pods of a machine fit on others; if so, that room is taken."""
        if machine.name in self._filled:
            return False
        self._emptied.add(machine.name)
        taken: list[tuple[str, Shape]] = []
        for pod in machine.pods:
            name = self._place(pod.shape)
            if name is None:
                for earlier, shape in taken:
                    _add(self._room[earlier], shape, 1)
                self._emptied.discard(machine.name)
                return False
            _add(self._room[name], pod.shape, -1)
            taken.append((name, pod.shape))
        self._filled.update(name for name, _ in taken)
        return True

    def _place(self, shape: Shape) -> str | None:
        # Pods with other placement rules, which only the scheduler evaluates, are not moved.
        if shape.spread or shape.together or shape.apart or shape.claims or shape.ephemeral or shape.ports:
            return None
        known = self._fitting.get(id(shape))
        if known is None:
            fit = [
                each
                for each in self._targets
                if node_affinity.obstacle(shape, each.labels, each.taints, name=each.name) is None
            ]
            known = self._fitting[id(shape)] = (shape, fit)
        for each in known[1]:
            if each.name in self._emptied:
                continue
            room = self._room.get(each.name)
            if room is None:
                room = self._room[each.name] = free(each, self._groups)
            if all(room.get(what, 0) >= amount for what, amount in shape.requests):
                return each.name
        return None


def free(machine: Machine, groups: Mapping[str, GroupView]) -> dict[str, int]:
    """What its pods and DaemonSets leave free on a machine; negative if it is overcommitted."""
    room = dict(machine.allocatable)
    group = groups.get(machine.group or "")
    coming = group.template.overhead if group is not None else {}
    there: defaultdict[str, int] = defaultdict(int)
    for pod in machine.daemons:
        for what, amount in pod.shape.requests:
            there[what] += amount
    for what in {*coming, *there}:
        room[what] = room.get(what, 0) - max(there.get(what, 0), coming.get(what, 0))
    for pod in machine.pods:
        _add(room, pod.shape, -1)
    return room


def low(machine: Machine) -> bool:
    """Whether a machine's utilization is so low that its pods are worth moving."""
    for what in ("cpu", "memory"):
        asked = sum(dict(pod.shape.requests).get(what, 0) for pod in machine.pods)
        if asked * 100 > machine.allocatable.get(what, 0) * _LOW:
            return False
    return True


def load(pods: Sequence[Pod]) -> int:
    """A rough measure of how much must be moved; the lowest is first."""
    return sum(amount for pod in pods for what, amount in pod.shape.requests if what in ("cpu", PODS))


def _add(room: dict[str, int], shape: Shape, sign: int) -> None:
    for what, amount in shape.requests:
        room[what] = room.get(what, 0) + sign * amount
