"""What both models need: room on nodes, and how many new ones equal pods take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from infra.autoscaler.config import Group
from infra.autoscaler.node_properties import Resources
from infra.autoscaler.observed.snapshot import (
    GPU,
    Node,
    Pod,
    Shape,
)
from infra.simulator.cluster import fits

Free = dict[str, int]


class Rooms:
    """Free room of nodes, with what is put there counted."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod]) -> None:
        self.free: dict[str, Free] = {node.name: dict(node.allocatable) for node in nodes}
        self._nodes = {node.name: node for node in nodes}
        self._kinds: dict[tuple[int, int], bool] = {}
        for pod in pods:
            if pod.node in self.free:
                take(self.free[pod.node], pod.shape, 1)

    def put(self, shape: Shape, count: int, names: Iterable[str]) -> int:
        """Put so many equal pods on the first nodes that have room; how many found some."""
        left = count
        for name in names:
            if left == 0:
                break
            free = self.free[name]
            some = min(most(free, shape), left)
            if some > 0 and fits(shape, self._nodes[name].labels, self._nodes[name].taints):
                take(free, shape, some)
                left -= some
        return count - left


def most(free: Mapping[str, int], shape: Shape) -> int:
    """How many equal pods there is room for."""
    return max(0, min(free.get(name, 0) // amount for name, amount in shape.requests))


def take(free: Free, shape: Shape, count: int) -> None:
    """Take the room of so many pods."""
    for name, amount in shape.requests:
        free[name] = free.get(name, 0) - amount * count


def fill(bins: list[Free], shape: Shape, count: int, offered: Resources, limit: int) -> int:
    """Put equal pods into bins, first fit, and open new ones up to a number; how many found a place."""
    left = count
    for free in bins:
        if left == 0:
            return count
        some = min(most(free, shape), left)
        if some:
            take(free, shape, some)
            left -= some
    each = most(offered, shape)
    while left and each and len(bins) < limit:
        free = dict(offered)
        some = min(each, left)
        take(free, shape, some)
        bins.append(free)
        left -= some
    return count - left


def by_shape(pods: Iterable[Pod]) -> dict[Shape, list[Pod]]:
    """Equal pods together, oldest first."""
    found: dict[int, list[Pod]] = {}
    for pod in pods:
        found.setdefault(id(pod.shape), []).append(pod)
    return {pods[0].shape: pods for pods in found.values()}


def takes(group: Group, shape: Shape) -> bool:
    """Whether a machine of a group takes such a pod at all."""
    return most(group.allocatable, shape) > 0 and fits(shape, group.labels, group.taints)


def whole(node: Node, group: Group | None) -> bool:
    """Whether a node is ready and has its cards, where its group has some."""
    cards = group is not None and group.allocatable.get(GPU, 0) > 0
    return node.ready and (not cards or node.allocatable.get(GPU, 0) > 0)
