"""Explains why a pod runs, waits, or will never run: one pod's part of a loop's decision."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, to_builtins

from infra.autoscaler.decision import Decision, SetDesired, Verdict
from infra.autoscaler.observed.snapshot import SCHEDULER, Pod, Snapshot
from infra.autoscaler.reasons import Reason
from infra.autoscaler.reporting import sentences
from infra.errors import UsageError
from infra.nearest import nearest


class Change(Struct, frozen=True):
    """A group whose size is changed by this loop."""

    group: str
    was: int
    desired: int
    reason: str


class Explained(Struct, frozen=True):
    """A pod's verdict."""

    pod: str
    """``namespace/name``."""
    outcome: str
    """``runs``, ``over``, ``leaves``, ``held`` (gated, or placed by others), ``nominated``, or its verdict's
    outcome: ``fits``, ``coming``, ``starting``, ``waits``, ``never``."""
    text: str
    """A one-line explanation."""
    where: tuple[str, ...] = ()
    """Nodes or groups."""
    gang: str | None = None
    reason: Reason | None = None
    """Why it waits or never fits, from its verdict."""
    obstacles: tuple[Reason, ...] = ()
    """Why each group does not fit, in the order in which they are tried."""
    changes: tuple[Change, ...] = ()
    """What the loop would do, for this pod and others."""
    unknown: tuple[str, ...] = ()
    """What could not be read, and might change the result."""
    stopped: str | None = None
    """Why nothing is written at all; else None."""


def explain(snapshot: Snapshot, decision: Decision, pod: str) -> Explained:
    """Explain one pod, ``namespace/name``. Raises ``UsageError`` if it does not exist."""
    found = _find(snapshot, pod)
    outcome, text, verdict = _judged(found, decision)
    unknown = [*snapshot.errors.items(), *snapshot.faults.items()]
    return Explained(
        pod=pod,
        outcome=outcome,
        text=text,
        where=verdict.where if verdict is not None else (found.node,) if found.node else (),
        gang=found.gang,
        reason=verdict.reason if verdict is not None else None,
        obstacles=verdict.obstacles if verdict is not None else (),
        changes=tuple(
            Change(each.group, each.was, each.desired, each.reason)
            for each in decision.actions
            if isinstance(each, SetDesired)
        ),
        unknown=tuple(f"{what}: {why}" for what, why in unknown),
        stopped=decision.stopped,
    )


def plain(found: Explained | Verdict) -> dict[str, Any]:
    """As JSON: codes and fields, with their sentences as ``text``."""
    text = sentences.verdict(found) if isinstance(found, Verdict) else found.text
    obstacles = [
        {**to_builtins(each), "until": each.until, "text": sentences.reason(each)} for each in found.obstacles
    ]
    return {**to_builtins(found), "text": text, "obstacles": obstacles}


def _find(snapshot: Snapshot, pod: str) -> Pod:
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name:
        raise UsageError(f"{pod!r}: say which pod as namespace/name, user-ada/train-0")
    for each in snapshot.pods:
        if (each.namespace, each.name) == (namespace, name):
            return each
    if why := snapshot.faults.get(f"Pod/{pod}"):
        raise UsageError(f"{pod} is invalid: {why}")
    near = nearest(name, [each.name for each in snapshot.pods if each.namespace == namespace])
    hint = f"; did you mean {namespace}/{near}?" if near else ""
    raise UsageError(f"pod {pod} not found, or it has ended{hint}")


def _judged(pod: Pod, decision: Decision) -> tuple[str, str, Verdict | None]:
    for verdict in decision.verdicts:
        if pod.uid in verdict.pods or (pod.gang is not None and verdict.gang == pod.gang and not pod.node):
            return verdict.outcome, sentences.verdict(verdict), verdict
    if pod.deleting:
        return "leaves", f"it is being deleted{f', on {pod.node}' if pod.node else ''}", None
    if pod.node:
        return "runs", f"it is on {pod.node}", None
    if pod.gated:
        return "held", "a scheduling gate holds it back: its queue has not let it in yet", None
    if pod.scheduler != SCHEDULER:
        return "held", f"the scheduler {pod.scheduler} places it, by rules that are not known here", None
    if pod.nominated:
        return "nominated", f"the scheduler makes room for it on {pod.nominated}", None
    if pod.daemon:
        return "held", "it comes with its node, and no node is started for it", None
    return "waits", "this loop has no word on it", None


def clock(when: float | None) -> str:
    """``14:05`` (UTC); empty for None."""
    return f"{datetime.fromtimestamp(when, UTC):%H:%M}" if when is not None else ""
