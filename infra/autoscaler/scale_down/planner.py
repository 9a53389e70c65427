"""Plans the termination of idle, broken and interrupted machines.

Voluntarily, for a machine without work::

    idle ── taint ──(settle)── check again ── evict ──(all gone)── terminate ── release ── gone
              │                    │           │
              └── a pod was bound, or work is planned on it: the taint is removed

A machine that its group or AWS terminates in any case is tainted and drained immediately: its pods,
including batch work, are notified of the termination and evicted; then its lifecycle hook is released. A
machine that never joined the cluster, or was lost and has no work, is terminated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from infra.autoscaler.config import Config
from infra.autoscaler.decision import Action, Notice
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.scale_down.candidates import candidates
from infra.autoscaler.scale_down.termination import Steps


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """The actions, and the updated memory."""

    actions: tuple[Action, ...]
    memory: Memory
    notices: tuple[Notice, ...] = ()


def plan(
    view: ClusterState,
    held: frozenset[str],
    sizes: Mapping[str, int],
    snapshot: Snapshot,
    memory: Memory,
    config: Config,
    now: float,
) -> ScaleIn:
    """The next step of every machine that is being drained, and those that begin.

    ``held``: machines that get work in this loop's plan. ``sizes``: groups that grow in it, and are not
    reduced meanwhile. If pods or nodes could not be read, nothing is done, as idle machines may not be idle.
    """
    if any(what.startswith(("kube/nodes", "kube/pods")) for what in snapshot.errors):
        return ScaleIn((), memory)
    memory = _observed(view, memory, now)
    steps = Steps(view, held, sizes, snapshot, memory, config, now)
    for machine in view.machines:
        steps.go_on(machine)
    for group in view.groups.values():
        if group.state is not None:
            steps.asleep(group.state)
    for machine in candidates(view, held, sizes, memory, config, steps.allowance, steps.budgets, now):
        steps.begin(machine)
    kept = replace(memory, drains=steps.drains, spared=steps.spared, broken=steps.broken)
    return ScaleIn(tuple(steps.actions), kept, tuple(steps.notices))


def _observed(view: ClusterState, memory: Memory, now: float) -> Memory:
    """Update since when machines have been idle, or booting."""
    idle: dict[str, float] = {}
    boots: dict[str, float] = {}
    for machine in view.machines:
        if machine.group is None:
            continue
        if machine.state in ("booting", "stuck"):
            if machine.instance is not None:
                boots[machine.instance.id] = memory.boots.get(machine.instance.id, now)
        elif machine.node is not None and not machine.pods and machine.state != "gone":
            idle[machine.name] = memory.idle.get(machine.name, now)
    silent = {name for name, group in view.groups.items() if group.state is None}
    if silent:
        # Instances of a region that does not answer are not seen: their memory is kept.
        boots = {**memory.boots, **boots}
    names = {machine.name for machine in view.machines}
    spared = {name: until for name, until in memory.spared.items() if until > now and name in names}
    return replace(memory, idle=idle, boots=boots, spared=spared)
