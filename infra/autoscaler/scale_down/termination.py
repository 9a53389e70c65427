"""The steps of draining and terminating a machine, one per loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace

from infra.autoscaler.backoff import clock
from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import (
    Action,
    Evict,
    FreeNode,
    Notice,
    NoticeKind,
    Release,
    RemoveNode,
    TaintNode,
    Tell,
    Terminate,
)
from infra.autoscaler.memory import Drain, Memory
from infra.autoscaler.observed.cluster_state import ClusterState, Machine
from infra.autoscaler.observed.snapshot import DRAIN_TAINT, ENDS_AT, GroupState, Instance, Node, Pod, Snapshot
from infra.autoscaler.scale_down.candidates import Allowance, reserved, spare
from infra.autoscaler.scale_down.eviction import Budgets, stays

_WAITS: Final = "Terminating:Wait"

_LINGERS: Final = 600
"""Seconds for which the node of a terminated machine may still be ready. After that it was not terminated
but detached from its group."""

_BROKEN: Final = 86400.0
"""Seconds for which a broken machine that we terminated counts only once against the allowance of a loop."""

_MARGIN: Final = 60
"""Extra seconds for an eviction beside the pod's grace period: for loops, and a busy kubelet."""


@dataclass(frozen=True, slots=True)
class _Ours:
    """A machine of a group whose instance is known."""

    machine: Machine
    group: Group
    instance: Instance

    @property
    def node(self) -> str:
        """The name of its node; empty if none has joined."""
        return self.machine.node.name if self.machine.node is not None else ""


class Steps:
    """The steps of one loop, in the order of machines' names: fills `actions`, `drains`, `spared`, `broken`
    and `notices`."""

    def __init__(
        self,
        view: ClusterState,
        held: frozenset[str],
        sizes: Mapping[str, int],
        snapshot: Snapshot,
        memory: Memory,
        config: Config,
        now: float,
    ) -> None:
        self.actions: list[Action] = []
        self.drains: dict[str, Drain] = {}
        self.spared = dict(memory.spared)
        self.broken = {name: since for name, since in memory.broken.items() if now - since < _BROKEN}
        self.notices: list[Notice] = []
        self.budgets = Budgets(snapshot.budgets)
        self.allowance = Allowance(view, memory, config)
        self._view = view
        self._held = held
        self._sizes = sizes
        self._memory = memory
        self._config = config
        self._now = now
        self._missing = spare(view, held, memory, config)

    def begin(self, machine: Machine) -> None:
        """Begin the drain of an idle machine."""
        ours = self._ours(machine)
        if ours is None:
            return
        since = self._memory.idle.get(machine.name)
        if _sick(machine):
            why = "its GPUs are unhealthy, and nothing runs on it"
        elif since is None:
            why = "little runs on it, for which others have room"
        else:
            why = f"it is idle since {clock(since)}"
        self._do(TaintNode(machine.name, why))
        self.drains[machine.name] = self._drain(ours, "tainted", why)

    def go_on(self, machine: Machine) -> None:
        """The next step of a machine that is being drained, or has to be."""
        node = machine.node
        drain = self._memory.drains.get(machine.name)
        ours = self._ours(machine)
        if machine.state == "gone":
            if node is not None:
                self._do(RemoveNode(node.name, node.uid, "its instance no longer exists"))
        elif ours is None:
            if machine.group is not None:
                if drain is not None:
                    self.drains[machine.name] = drain  # Its region does not answer.
            elif node is not None and _tainted(node):
                if drain is not None and node.instance and self._ended(drain):
                    self.drains[machine.name] = drain
                elif node.ready or not node.instance:
                    self._do(FreeNode(node.name, "it is not a machine of a group"))
        elif machine.state == "leaving":
            if node is not None:
                self._leave(ours, node, drain)
            elif ours.instance.lifecycle == _WAITS:
                self._release(ours, "no node of it ever joined")
        elif machine.state == "stuck":
            minutes = self._config.boot_timeout // 60
            self._end_broken(ours, f"it did not join the cluster within {minutes} min")
        elif machine.state == "unready" and node is not None:
            self._lost(ours, node)
        elif machine.state == "draining" and node is not None:
            if drain is None or drain.forced:
                # It is not in the memory, or what forced it is over: it starts again.
                drain = self._drain(ours, "tainted", "it has our taint")
            self._by_choice(ours, node, drain)

    def asleep(self, state: GroupState) -> None:
        """Complete the hooks of warm-pool instances that a group terminates: they never had work."""
        for instance in state.instances:
            if instance.warm and instance.lifecycle.endswith(_WAITS):
                self._do(Release(state.name, instance.id, "", "it leaves the warm pool"))

    # --- by choice ------------------------------------------------------------------------------------------

    def _by_choice(self, ours: _Ours, node: Node, drain: Drain) -> None:
        machine = ours.machine
        age = self._now - drain.since
        if (why := self._against(ours, node, drain)) is not None:
            self._do(FreeNode(machine.name, why))
        elif drain.stage == "tainted" and not _tainted(node):
            # The taint was not written; the wait begins once it is.
            self._do(TaintNode(machine.name, drain.reason))
            self.drains[machine.name] = replace(drain, since=self._now)
        elif drain.stage == "tainted" and age < self._config.settle:
            self.drains[machine.name] = drain
        elif not machine.pods:
            self._end(ours, drain)
        elif drain.stage == "tainted":
            ready = self._may_end(ours)
            if ready:
                self._evict(machine, drain.reason)
            self.drains[machine.name] = replace(drain, stage="draining", since=self._now) if ready else drain
        elif age < ours.group.drain_timeout_seconds:
            self._evict(machine, drain.reason)
            self.drains[machine.name] = drain
        else:
            self._give_up(ours)

    def _against(self, ours: _Ours, node: Node, drain: Drain) -> str | None:
        """Why a machine is kept after all; None if it is not."""
        machine = ours.machine
        if machine.name in self._held:
            return "work is planned on it"
        if reserved(node):
            return "somebody else keeps it"
        for pod in machine.pods:
            if (why := stays(pod, self.budgets)) is not None:
                return f"{pod.namespace}/{pod.name} came, which {why}"
        if drain.stage == "ending" and machine.pods:
            return f"{_names(machine.pods)} came"
        if drain.stage != "ending" and not self.allowance.above_least(machine):
            return "its group is at its least size"
        pool = ours.group.pool
        if drain.stage == "tainted" and not _sick(machine) and self._missing.get(pool, 0) > 0:
            self._missing[pool] -= 1
            return "it is kept as a spare one"
        return None

    def _may_end(self, ours: _Ours, *, again: bool = False) -> bool:
        return (
            ours.group.name not in self._sizes
            and self.allowance.above_least(ours.machine)
            and (again or self.allowance.may_end(ours.machine))
        )

    def _end(self, ours: _Ours, drain: Drain) -> None:
        """Terminate it, or wait for a loop in which that is allowed."""
        name = ours.machine.name
        self.drains[name] = drain
        again = drain.stage == "ending"
        if self._may_end(ours, again=again):
            self.allowance.end(ours.machine, again=again)
            self._do(Terminate(ours.group.name, ours.instance.id, ours.node, drain.reason))
            if drain.stage != "ending":
                self.drains[name] = replace(drain, stage="ending", since=self._now)

    def _give_up(self, ours: _Ours) -> None:
        name = ours.machine.name
        until = self._now + max(self._config.idle, ours.group.drain_timeout_seconds)
        self.spared[name] = until
        self._do(FreeNode(name, "its pods could not be evicted in time"))
        self._say(
            "drain",
            name,
            f"{name} could not be emptied: {_names(ours.machine.pods)} may not be evicted; it is left alone "
            f"until {clock(until)}",
        )

    # --- what ends in any case ------------------------------------------------------------------------------

    def _leave(self, ours: _Ours, node: Node, drain: Drain | None) -> None:
        """Its group or AWS terminates it: its pods are notified and evicted, and then the hook is
        completed."""
        machine, instance = ours.machine, ours.instance
        waits = instance.lifecycle == _WAITS
        if not waits and (instance.leaving or instance.interrupted is None):
            if drain is not None:
                self.drains[machine.name] = drain  # No hook delays it any more.
            return
        there = [pod for pod in machine.pods if pod.node]
        if drain is None or not (drain.forced or drain.stage == "ending"):
            why = "its group ends it"
            if instance.interrupted is not None:
                why = f"AWS takes it back at {clock(instance.interrupted)}"
            drain = self._drain(ours, "draining", why, forced=True)
            if there:
                self._say("ends", machine.name, f"{machine.name} ends: {why}. {_names(there)} must go")
        ends = [self._now + ours.group.drain_timeout_seconds if drain.deadline is None else drain.deadline]
        if instance.interrupted is not None:
            ends.append(instance.interrupted)
        drain = self.drains[machine.name] = replace(drain, deadline=min(ends))
        if waits and (not there or self._now >= min(ends)):
            self._release(ours, "its time is over" if there else "it is empty")
            return
        if waits and self._silent(node) and all(pod.deleting for pod in there):
            # Its kubelet cannot terminate them any more: Kubernetes deletes them with the node.
            self._release(ours, "it is silent, and its pods were asked to leave")
            return
        if not _tainted(node):
            self._do(TaintNode(machine.name, drain.reason))
        self._evict(
            machine, drain.reason, by=drain.deadline, spare=instance.interrupted is None and instance.leaving
        )

    def _lost(self, ours: _Ours, node: Node) -> None:
        """It was up, and is not: it is terminated once nothing runs there that could return."""
        if any(not pod.deleting for pod in ours.machine.pods):
            return
        idle = self._memory.idle.get(ours.machine.name)
        if node.ready and idle is None:
            return
        quiet = max(node.since, idle or 0.0)
        if self._now - quiet >= self._config.boot_timeout:
            minutes = self._config.boot_timeout // 60
            what = "it offers no GPUs" if node.ready else "it is not ready"
            self._end_broken(ours, f"{what} for {minutes} min, and holds no work")

    def _silent(self, node: Node) -> bool:
        """Whether a node has not been ready for the boot timeout."""
        return not node.ready and self._now - node.since >= self._config.boot_timeout

    def _end_broken(self, ours: _Ours, why: str) -> None:
        """Terminate it; in a group at its minimum AWS replaces it."""
        name, group = ours.machine.name, ours.group.name
        if self.allowance.end(ours.machine, again=name in self.broken):
            self._do(Terminate(group, ours.instance.id, ours.node, why, forced=True))
            self.broken.setdefault(name, self._now)
            self._say("broken", name, f"{name} of {group} is ended: {why}")

    def _release(self, ours: _Ours, why: str) -> None:
        self._do(Release(ours.group.name, ours.instance.id, ours.node, why))

    # --- small things ---------------------------------------------------------------------------------------

    def _ended(self, drain: Drain) -> bool:
        """Whether a machine that no group has any more was terminated recently: its node remains for a
        while, first as ready, its kubelet's last report. No work must be placed on it."""
        ending = drain.stage == "ending" or drain.forced
        return ending and self._now < max(drain.since, drain.deadline or 0.0) + _LINGERS

    def _ours(self, machine: Machine) -> _Ours | None:
        if machine.group is None or machine.instance is None:
            return None
        return _Ours(machine, self._view.groups[machine.group].group, machine.instance)

    def _drain(
        self, ours: _Ours, stage: Literal["tainted", "draining"], reason: str, *, forced: bool = False
    ) -> Drain:
        return Drain(
            group=ours.group.name,
            instance=ours.instance.id,
            stage=stage,
            since=self._now,
            started=self._now,
            reason=reason,
            forced=forced,
        )

    def _evict(self, machine: Machine, why: str, by: float | None = None, *, spare: bool = False) -> None:
        """``spare``: pods that would lose their work run on as long as possible, and are notified."""
        for pod in machine.pods:
            if not pod.node or pod.deleting:
                continue
            late = by is None or self._now + pod.grace + _MARGIN >= by
            if spare and not late and stays(pod, self.budgets) is not None:
                if by is not None and ENDS_AT not in pod.annotations:
                    self._do(Tell(pod.namespace, pod.name, pod.uid, machine.name, why, by))
            else:
                self._do(Evict(pod.namespace, pod.name, pod.uid, machine.name, why, by))

    def _do(self, action: Action) -> None:
        self.actions.append(action)

    def _say(self, kind: NoticeKind, about: str, text: str) -> None:
        self.notices.append(Notice(kind, about, "warning", text))


def _tainted(node: Node) -> bool:
    return any(taint.key == DRAIN_TAINT for taint in node.taints)


def _sick(machine: Machine) -> bool:
    return machine.node is not None and machine.node.sick


def _names(pods: Sequence[Pod]) -> str:
    first = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:3])
    return first + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
