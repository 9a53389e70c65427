"""Waits for workloads to become available on nodes that are ready.

``kubectl rollout status`` and ``helm --wait`` wait for every pod, including those on a dead node: one
machine without power would block the whole cluster. Here pods on a node that is not ready are reported, not
waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final

from infra.drive.kubernetes import status
from infra.drive.kubernetes.api import Api, AwayError
from infra.drive.kubernetes.refs import Ref
from infra.errors import DriveError
from infra.nearest import listed

_PLURALS: Final = {"Deployment": "deployments", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets"}
_BEAT: Final = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The rollout status of a workload."""

    ref: Ref
    seen: bool
    """Whether its controller has observed the current generation."""
    wanted: int
    """The number of pods wanted."""
    updated: int
    """The number of pods of the current template."""
    available: int
    away: tuple[str, ...]
    """Nodes that are not ready and have one of its pods; for a Deployment, one entry per pod."""

    @property
    def whole(self) -> bool:
        """Whether all pods are ready and current."""
        return self.seen and min(self.updated, self.available) >= self.wanted

    @property
    def settled(self) -> bool:
        """Whether all pods that can be are ready and current."""
        return self.seen and min(self.updated, self.available) >= self.wanted - len(self.away)

    @property
    def held_up(self) -> bool:
        """Whether all pods that can be are ready, but some are outdated because nodes that are not ready
        block their replacement."""
        return self.seen and bool(self.away) and self.available >= self.wanted - len(self.away)

    def __str__(self) -> str:
        up = min(self.updated, self.available) if self.seen else 0
        away = f"; away: {listed(sorted(set(self.away)))}" if self.away else ""
        return f"{self.ref}: {up} of {self.wanted} pods{away}"


def workloads(refs: Iterable[Ref], *, placed: bool) -> list[Ref]:
    """The objects that have pods. ``placed``: whether there is a node for ordinary pods; without one, only
    DaemonSets."""
    return [each for each in refs if each.kind == "DaemonSet" or (placed and each.kind in _PLURALS)]


def standing(api: Api, ref: Ref, gone: Callable[[], Collection[str]]) -> Standing:
    """The rollout status of a workload. ``gone``: returns the nodes that are not ready; called only while
    pods are missing. Raises ``ApiError`` if the workload does not exist."""
    found = api.get(f"/apis/apps/v1/namespaces/{ref.namespace}/{_PLURALS[ref.kind]}/{ref.name}")
    spec, now = found["spec"], found.get("status") or {}
    if ref.kind == "DaemonSet":
        wanted = int(now.get("desiredNumberScheduled", 0))
        updated, available = int(now.get("updatedNumberScheduled", 0)), int(now.get("numberAvailable", 0))
    else:
        wanted = int(spec.get("replicas", 1))
        updated, available = int(now.get("updatedReplicas", 0)), int(now.get("availableReplicas", 0))
    if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
        updated = wanted
    seen = int(now.get("observedGeneration", 0)) >= int(found["metadata"]["generation"])
    counted = Standing(ref, seen, wanted, updated, available, ())
    if counted.whole or not (names := gone()):
        return counted
    return replace(counted, away=_away(api, ref, spec["selector"], names))


def _gone(api: Api, *, patient: bool) -> set[str]:
    """Nodes that are not waited for; empty if no node is ready. ``patient``: without nodes that report
    themselves as not ready."""
    states = {
        str(each["metadata"]["name"]): status.condition(each, "Ready") for each in api.list("/api/v1/nodes")
    }
    if "True" not in states.values():
        return set()
    return {name for name, ready in states.items() if ready == "Unknown" or not (patient or ready == "True")}


def _away(api: Api, ref: Ref, selector: Mapping[str, Any], gone: Collection[str]) -> tuple[str, ...]:
    pods = api.list(f"/api/v1/namespaces/{ref.namespace}/pods", labelSelector=_words(selector))
    nodes = [str((pod.get("spec") or {}).get("nodeName", "")) for pod in pods]
    found = [each for each in nodes if each in gone]
    # A DaemonSet has one per node. On a dead node the old pod never terminates and remains beside the new
    # one.
    return tuple(sorted(set(found) if ref.kind == "DaemonSet" else found))


def _words(selector: Mapping[str, Any]) -> str:
    """A label selector as a query parameter."""
    said = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or []:
        key, values = each["key"], f"({','.join(each.get('values') or [])})"
        operator = each["operator"]
        said.append(
            key
            if operator == "Exists"
            else f"!{key}"
            if operator == "DoesNotExist"
            else f"{key} {'in' if operator == 'In' else 'notin'} {values}"
        )
    return ",".join(said)


def wait(
    api: Api,
    refs: Sequence[Ref],
    *,
    seconds: float,
    on_line: Callable[[str], None] = lambda _line: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Wait until all workloads have settled; returns what is missing, one line each.

    A node whose condition ``Ready`` is ``Unknown`` is not waited for. A node that reports itself as not
    ready may become ready soon, so it is waited for until the timeout.

    Raises ``DriveError`` at the timeout if pods are missing from ready nodes, or no node is ready. A dead
    node may block pods of other nodes, as a DaemonSet's controller replaces only so many at a time: that is
    reported and is not an error.
    """
    deadline = clock() + seconds
    waiting = list(refs)
    missing: list[str] = []
    told: dict[Ref, str] = {}
    while waiting:
        over = clock() >= deadline
        try:
            # A large cluster has many nodes: they are listed once per round, and only while pods are missing.
            gone = cache(partial(_gone, api, patient=not over))
            found = [standing(api, each, gone) for each in waiting]
        except AwayError:
            # Applied objects may restart the API's own components.
            if over:
                raise
            sleep(_BEAT)
            continue
        missing += [str(each) for each in found if each.settled and not each.whole]
        late = [each for each in found if not each.settled]
        if over and late:
            if stuck := [each for each in late if not each.held_up]:
                raise DriveError(
                    f"not up after {seconds:.0f} s: {'; '.join(map(str, stuck))}. Why: kubectl get events "
                    f"--namespace {stuck[0].ref.namespace}"
                )
            return missing + [str(each) for each in late]
        for each in late:
            if told.get(each.ref) != str(each):
                told[each.ref] = str(each)
                on_line(f"waiting for {each}")
        waiting = [each.ref for each in late]
        if waiting:
            sleep(_BEAT)
    return missing
