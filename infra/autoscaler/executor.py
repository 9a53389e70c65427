"""Executes decisions: regions in parallel, in each first the sizes of groups, then node by node.

Each region has its own threads, as have actions without a group: a region that does not answer delays only
itself. A failed action is a result; it only stops later actions on the same node.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from infra.autoscaler.config import Config
from infra.autoscaler.decision import (
    Action,
    Answer,
    Decision,
    Done,
    Evict,
    FreeNode,
    HoldFlavor,
    Release,
    RemoveNode,
    Result,
    SetDesired,
    TaintNode,
    Tell,
    Terminate,
)
from infra.autoscaler.observed.snapshot import Node, Pod

_AT_ONCE: Final = 8
"""Groups, or nodes, of a region that are processed in parallel."""


class Kube(Protocol):
    """The Kubernetes side. Thread-safe."""

    def do(self, action: TaintNode | FreeNode | Evict | Tell | RemoveNode | Answer | HoldFlavor) -> Result:
        """Execute an action; errors of the API are results."""

    def pods_on(self, node: str) -> Sequence[Pod]:
        """The current pods of a node. Raises if they cannot be read."""

    def node(self, name: str) -> Node | None:
        """The current state of a node; None if it does not exist. Raises if it cannot be read."""

    def node_of(self, instance: str) -> Node | None:
        """The current node of an instance; None if it has not joined. Raises if it cannot be read."""


class Aws(Protocol):
    """The AWS side. Thread-safe."""

    def set_desired(self, action: SetDesired) -> Result: ...

    def terminate(self, action: Terminate) -> Result: ...

    def release(self, action: Release) -> Result: ...

    def ended(self, region: str, instance: str) -> bool | None: ...


def run(
    decision: Decision,
    kube: Kube,
    aws: Aws,
    config: Config,
    *,
    dry: bool = False,
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[Done, ...]:
    """The result of each action, in the decision's order.

    ``dry``: do nothing, and say so. ``go_on`` is called before each action: once it returns False, because
    the lease was lost or the process was asked to stop, the rest is skipped.
    """
    if dry:
        return tuple(Done(action, Result("planned")) for action in decision.actions)
    return _Run(decision, kube, aws, config, go_on).all()


class _Run:
    def __init__(
        self, decision: Decision, kube: Kube, aws: Aws, config: Config, go_on: Callable[[], bool]
    ) -> None:
        self._actions = decision.actions
        self._kube = kube
        self._aws = aws
        self._go_on = go_on
        self._regions: Mapping[str, str] = {group.name: group.region for group in config.groups}
        self._groups = {name: each.group for name, each in decision.memory.drains.items()} | {
            each.node: each.group for each in decision.actions if isinstance(each, Terminate | Release)
        }

    def all(self) -> tuple[Done, ...]:
        regions: dict[str, list[int]] = defaultdict(list)
        for number, action in enumerate(self._actions):
            regions[self._region(action)].append(number)
        found: dict[int, Done] = {}
        with ThreadPoolExecutor(max(1, len(regions)), thread_name_prefix="write") as pool:
            for done in pool.map(self._one_region, regions.values()):
                found |= done
        return tuple(found[number] for number in range(len(self._actions)))

    def _region(self, action: Action) -> str:
        """The region of an action; empty for one without a group."""
        if isinstance(action, SetDesired | Terminate | Release):
            return self._regions.get(action.group, "")
        if isinstance(action, Answer | HoldFlavor):
            return ""
        return self._regions.get(self._groups.get(action.node, ""), "")

    def _one_region(self, numbers: Sequence[int]) -> dict[int, Done]:
        """Sizes and flavors first, then node by node: nodes of one group do not wait for each other."""
        sizes: dict[str, list[int]] = defaultdict(list)
        nodes: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            action = self._actions[number]
            if isinstance(action, SetDesired):
                sizes[action.group].append(number)
            elif isinstance(action, HoldFlavor):  # before Kueue learns that a request failed
                sizes[action.flavor].append(number)
            elif isinstance(action, Answer):
                nodes[action.gang].append(number)
            else:
                nodes[action.node or action.instance].append(number)  # type: ignore[union-attr]
        found: dict[int, Done] = {}
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="write") as pool:
            for lines in (sizes, nodes):
                for done in pool.map(self._one_line, lines.values()):
                    found |= done
        return found

    def _one_line(self, numbers: Sequence[int]) -> dict[int, Done]:
        found: dict[int, Done] = {}
        for number in numbers:
            action = self._actions[number]
            begun = time.monotonic()
            barring = next((done for done in found.values() if _bars(done, action)), None)
            if not self._go_on():
                result = Result("stale", "stopped before it was begun")
            elif barring is not None:
                result = Result("stale", f"not after {type(barring.action).__name__}: {barring.result.text}")
            else:
                result = self._contained(action)
            found[number] = Done(action, result, time.monotonic() - begun)
        return found

    def _contained(self, action: Action) -> Result:
        try:
            return self._one(action)
        except Exception as problem:
            return Result("failed", f"{type(problem).__name__}: {problem}")

    def _one(self, action: Action) -> Result:
        match action:
            case SetDesired():
                return self._aws.set_desired(action)
            case Release():
                return self._aws.release(action)
            case Terminate():
                return self._terminate(action)
            case RemoveNode():
                return self._remove(action)
            case _:
                return self._kube.do(action)

    def _terminate(self, action: Terminate) -> Result:
        """Read the node's pods again before terminating: one may have been scheduled since the decision,
        also on a node that was lost and is back. Pods that were asked to leave a lost node do not prevent
        it."""
        try:
            work = [
                pod
                for pod in self._pods_of(action)
                if not (pod.daemon or pod.over or (action.forced and pod.deleting))
            ]
        except Exception as problem:
            if not action.forced:
                return Result("refused", f"its pods can't be read: {type(problem).__name__}: {problem}")
            work = []
        if work:
            more = f" and {len(work) - 1} more" if len(work) > 1 else ""
            return Result("stale", f"{work[0].namespace}/{work[0].name}{more} runs on it")
        return self._aws.terminate(action)

    def _pods_of(self, action: Terminate) -> Sequence[Pod]:
        """The pods of exactly this instance: it may have joined since it was given up, and its node's name
        may belong to another instance by now."""
        if not action.node:
            joined = self._kube.node_of(action.instance)
            return self._kube.pods_on(joined.name) if joined is not None else ()
        node = self._kube.node(action.node)
        if node is not None and node.instance and node.instance != action.instance:
            return ()
        return self._kube.pods_on(action.node)

    def _remove(self, action: RemoveNode) -> Result:
        """Delete a node only after EC2 reports its instance as terminated."""
        node = self._kube.node(action.node)
        if node is None or (action.uid and node.uid != action.uid):
            return Result("needless", "the node is gone" if node is None else "it is another node by now")
        if not node.instance:
            return Result("refused", "it is not the node of a cloud machine")
        zone = node.provider.removeprefix("aws:").strip("/").partition("/")[0]
        region = next((each for each in set(self._regions.values()) if zone.startswith(each)), None)
        ended = self._aws.ended(region, node.instance) if region else None
        if ended is None:
            return Result("refused", f"whether {node.instance} has ended is unknown")
        if not ended:
            return Result("stale", f"{node.instance} still runs")
        return self._kube.do(action)


def _bars(done: Done, then: Action) -> bool:
    """Whether the result of an earlier action on the same node prevents an action."""
    if done.result.status in ("done", "needless"):
        return False
    match done.action, then:
        case ((Terminate() | Release()), RemoveNode()):
            return True
        case TaintNode(), Evict(by=None):
            return True
        case TaintNode(), Terminate(forced=False):
            return True
    return False
