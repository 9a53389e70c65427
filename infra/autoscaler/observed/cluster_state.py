"""The snapshot put in order: machines with their nodes, pods and states, and groups with what is coming."""

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
    "ready",  # takes work
    "booting",  # an instance whose node is not there or not ready, or has no GPUs yet; within its time
    "stuck",  # the same, beyond its time
    "unready",  # was ready, is not
    "closed",  # somebody else's cordon, or sick GPUs: keeps its pods, takes none
    "draining",  # our taint is on it
    "leaving",  # its group or AWS ends it
    "gone",  # a node whose instance is gone
]


@dataclass(frozen=True, slots=True)
class Machine:
    """A node, an instance, or both."""

    name: str
    """The node's name, or the instance's id while there is none."""
    state: State
    node: Node | None
    instance: Instance | None
    group: str | None
    """None for physical machines and masters."""
    zone: str
    labels: Mapping[str, str]
    """The node's; for one that boots, the group's with what its instance tells (zone, type)."""
    taints: tuple[Taint, ...]
    allocatable: Resources
    """The node's; for one that boots, the group's template."""
    pods: tuple[Pod, ...] = ()
    """Work: without daemons and those that are over."""
    daemons: tuple[Pod, ...] = ()
    units: int = 1
    """Capacity units of its group."""
    back: bool = False
    """Whether it is ``draining`` by choice and nothing was asked to leave yet: work that is placed on it
    (`Growth.held`) has it back. Its `taints` are without ours then."""

    @property
    def present(self) -> bool:
        """Whether it takes work, now, when it is up, or when it is had back."""
        return self.back or self.state in ("ready", "booting")


@dataclass(frozen=True, slots=True)
class Template:
    """A machine of a group as it will be: what a new one offers, less what daemons take."""

    group: Group
    labels: Mapping[str, str]
    """Without a zone or type where the group has several."""
    taints: tuple[Taint, ...]
    allocatable: Resources
    """As nodes seen have it, where there are any."""
    overhead: Resources
    """Of the DaemonSets that fit it."""
    price: float
    """USD an hour of one unit at the group's mix of markets; 0 where unknown."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group now."""

    group: Group
    state: GroupState | None
    """None if it could not be read: it is not written, and counts as full."""
    template: Template
    present: int
    """Units of instances that are there and stay."""
    coming: int
    """Units asked for that have no instance yet."""
    backoff: Backoff | None = None
    """In force now: the group takes no new machines."""
    closed_zones: Mapping[str, Backoff] = field(default_factory=dict)
    """Zones in back-off → why, and until when."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One loop's world in order. Machines are sorted by name, so that answers are stable."""

    at: float
    machines: tuple[Machine, ...]
    groups: Mapping[str, GroupView]
    pending: tuple[Pod, ...]
    """Pods that wait for a place, and may have one."""
    unready: int = 0
    """Nodes that were ready and are not. Machines that never came up say nothing of the network: they must
    not keep us from ending them."""
    ready: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    """Group → what is wrong with how it is set up (zone rebalancing is on …)."""
