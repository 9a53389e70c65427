"""A little world for scale-in: loops one after the other, whose actions are done as they are written.

Taints come and go, evicted pods leave at once unless a budget refuses, an instance that is terminated waits
in its hook until it is released, and then it is gone; its node stays, silent, until it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from autoscaler import make
from autoscaler.make import NOW
from msgspec.structs import replace

from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import (
    Action,
    Evict,
    FreeNode,
    Release,
    RemoveNode,
    SetDesired,
    TaintNode,
    Tell,
    Terminate,
)
from infra.autoscaler.launch_failures import detection
from infra.autoscaler.memory import Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import (
    DRAIN_TAINT,
    ENDS_AT,
    Budget,
    GroupState,
    Instance,
    Node,
    Pod,
    Snapshot,
)
from infra.autoscaler.scale_down import planner


class Scene:
    """What there is, and the memory from loop to loop."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.now = NOW
        self.memory = Memory()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, GroupState] = {group.name: make.state(group) for group in config.groups}
        self.budgets: tuple[Budget, ...] = ()
        self.errors: dict[str, str] = {}
        self.held: frozenset[str] = frozenset()
        self.sizes: dict[str, int] = {}
        self.notices: list[str] = []
        self.fails: tuple[type[Action], ...] = ()
        """Kinds of actions that do not work for now."""

    def add(self, group: Group, count: int, **more: Any) -> list[str]:
        """Machines that are up, with their nodes; the names of these."""
        state = self.groups[group.name]
        begin = len(state.instances) + 1
        instances, names = list(state.instances), []
        for number in range(begin, begin + count):
            node = make.node(group, number, name=f"{group.pool}-{group.site}-{number:04}", **more)
            self.nodes[node.name] = node
            names.append(node.name)
            instances.append(make.instance(group, number))
        self.groups[group.name] = replace(state, instances=tuple(instances), desired=len(instances))
        return names

    def put(self, *pods: Pod) -> None:
        """Pods, by their uids."""
        self.pods |= {pod.uid: pod for pod in pods}

    def instance(self, node: str, **fields: Any) -> None:
        """Change a node's instance."""
        identity = self.nodes[node].instance
        for name, state in self.groups.items():
            changed = tuple(
                replace(each, **fields) if each.id == identity else each for each in state.instances
            )
            self.groups[name] = replace(state, instances=changed)

    def loop(self, after: float = 10.0) -> tuple[Action, ...]:
        """One loop, and what it did; time goes on before it."""
        self.now += after
        snapshot = self.snapshot()
        learned = detection.learn(snapshot, self.memory, self.config, self.now).memory
        view = state_builder.build(snapshot, learned, self.config, self.now)
        plan = planner.plan(view, self.held, self.sizes, snapshot, learned, self.config, self.now)
        self.memory = plan.memory
        self.notices += [notice.text for notice in plan.notices]
        for action in plan.actions:
            if not isinstance(action, self.fails):
                self._do(action)
        return plan.actions

    def loops(self, count: int) -> list[Action]:
        """So many, and what all of them did."""
        return [action for _ in range(count) for action in self.loop()]

    def snapshot(self) -> Snapshot:
        return make.snapshot(
            self.nodes.values(),
            self.pods.values(),
            self.groups.values(),
            at=self.now,
            budgets=self.budgets,
            errors=self.errors,
        )

    def settled(self) -> None:
        """Time goes on until what is idle has been so for long enough."""
        self.loop()
        self.now += self.config.idle

    def _do(self, action: Action) -> None:
        match action:
            case TaintNode():
                node = self.nodes[action.node]
                taint = Taint(DRAIN_TAINT, f"{self.now:.0f}")
                self.nodes[action.node] = replace(node, taints=(*node.taints, taint))
            case FreeNode():
                node = self.nodes[action.node]
                taints = tuple(each for each in node.taints if each.key != DRAIN_TAINT)
                self.nodes[action.node] = replace(node, taints=taints)
            case Evict():
                if not any(budget.allowed <= 0 for budget in self.budgets):
                    self.pods.pop(action.uid, None)
            case Tell():
                pod = self.pods[action.uid]
                self.pods[action.uid] = replace(pod, annotations={**pod.annotations, ENDS_AT: f"{action.by}"})
            case Terminate():
                self._terminate(action)
            case Release():
                state = self.groups[action.group]
                kept = tuple(each for each in state.instances if each.id != action.instance)
                self.groups[action.group] = replace(state, instances=kept)
                if action.node:
                    lost = replace(self.nodes[action.node], ready=False, since=self.now)
                    self.nodes[action.node] = lost
                    self.pods = {uid: pod for uid, pod in self.pods.items() if pod.node != action.node}
            case RemoveNode():
                del self.nodes[action.node]
            case SetDesired():
                raise AssertionError("scale-in sets no sizes")

    def _terminate(self, action: Terminate) -> None:
        state = self.groups[action.group]
        replaced = action.forced and state.desired <= state.min
        assert replaced or state.desired > state.min, "AWS refuses to go below a group's least size"
        instances = tuple(
            replace(each, lifecycle="Terminating:Wait") if each.id == action.instance else each
            for each in state.instances
        )
        self.groups[action.group] = replace(
            state, instances=instances, desired=state.desired - (not replaced)
        )

    def present(self, group: Group) -> list[Instance]:
        """Its instances that are not on their way out."""
        return [each for each in self.groups[group.name].instances if not each.leaving]


def kinds(actions: Iterable[Action]) -> list[str]:
    """What was done, in words: ``TaintNode gpu-p3-us-west-2-0001``."""
    return [
        f"{type(action).__name__} {getattr(action, 'node', '') or getattr(action, 'instance', '')}"
        for action in actions
    ]


Kind = TypeVar("Kind")


def of(kind: type[Kind], actions: Iterable[Action]) -> list[Kind]:
    """Those of one kind."""
    return [action for action in actions if isinstance(action, kind)]
