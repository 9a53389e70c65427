"""The combined state: machines with their nodes, pods and states, and groups with what is starting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infra.autoscaler.config import Group
from infra.autoscaler.memory import Backoff
from infra.autoscaler.node_properties import Resources, Taint
from infra.autoscaler.observed.snapshot import (
    GroupState,
    Instance,
    Node,
    Pod,
)

State = Literal[
    "ready",  # accepts work
    "booting",  # an instance whose node is missing, not ready, or without its GPUs; within the boot timeout
    "stuck",  # the same, after the boot timeout
    "unready",  # was ready before, is not now
    "closed",  # cordoned by others, or with sick GPUs: keeps its pods, accepts no new ones
    "draining",  # has our taint
    "leaving",  # is being terminated by its group or AWS
    "gone",  # a node whose instance does not exist
]


@dataclass(frozen=True, slots=True)
class Machine:
    """A node, an instance, or both."""

    name: str
    """The node's name, or the instance's id without a node."""
    state: State
    node: Node | None
    instance: Instance | None
    group: str | None
    """None for physical machines and masters."""
    zone: str
    labels: Mapping[str, str]
    """The node's; while it boots, the group's, with the instance's zone and type."""
    taints: tuple[Taint, ...]
    allocatable: Resources
    """The node's; while it boots, that of the group's template."""
    pods: tuple[Pod, ...] = ()
    """Its pods, without those of DaemonSets and finished ones."""
    daemons: tuple[Pod, ...] = ()
    units: int = 1
    """Its weight in capacity units of its group."""
    back: bool = False
    """Whether it is ``draining`` by choice and no pod was asked to leave yet: if work is placed on it
    (`Growth.held`), the drain is undone. Then `taints` are without ours."""

    @property
    def present(self) -> bool:
        """Whether it accepts work: now, when it is up, or when its drain is undone."""
        return self.back or self.state in ("ready", "booting")


@dataclass(frozen=True, slots=True)
class Template:
    """A future machine of a group: what a new one offers, less the requests of DaemonSets."""

    group: Group
    labels: Mapping[str, str]
    """Without a zone or type if the group has several."""
    taints: tuple[Taint, ...]
    allocatable: Resources
    """As on observed nodes, if there are any."""
    overhead: Resources
    """Requests of the DaemonSets that run on it."""
    price: float
    """USD per hour of one unit at the group's mix of markets; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The current state of a group."""

    group: Group
    state: GroupState | None
    """None if it could not be read: then it is not written, and counts as full."""
    template: Template
    present: int
    """Units of existing instances that stay."""
    coming: int
    """Requested units without an instance."""
    backoff: Backoff | None = None
    """The current back-off: the group launches no machines."""
    closed_zones: Mapping[str, Backoff] = field(default_factory=dict)
    """Zones in back-off → the back-off."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The combined state of one loop. Machines are sorted by name, so that results are stable."""

    at: float
    machines: tuple[Machine, ...]
    groups: Mapping[str, GroupView]
    pending: tuple[Pod, ...]
    """Pods that wait and can be placed."""
    unready: int = 0
    """Nodes that were ready and are not. Machines that never joined are excluded: they say nothing about the
    network, and must not prevent their own termination."""
    ready: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    """Group → problems of its configuration (zone rebalancing is enabled …)."""
