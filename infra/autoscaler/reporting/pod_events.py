"""Events of pods: why they wait, or where they will run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from infra.autoscaler.backoff import barred
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Decision, Verdict
from infra.autoscaler.launch_failures.detection import words
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.reporting import sentences

_REASONS: Final[dict[str, str]] = {
    "coming": "MachineBoots",
    "starting": "MachineStarts",
    "waits": "WaitsForCapacity",
    "never": "FitsNowhere",
}
"""By outcome. For a pod that fits an existing node, the scheduler writes the event."""

ELSEWHERE: Final = "MachineStartsElsewhere"
"""A separate reason, as a pod usually had `MachineStarts` for the first region shortly before: new texts of
the same reason are held back for minutes."""


class News(Struct, frozen=True):
    """Input of a Kubernetes Event about an object."""

    kind: str
    namespace: str
    """Empty for a node."""
    name: str
    uid: str
    reason: str
    """One CamelCase word: ``WaitsForCapacity``."""
    note: str
    """One line for people."""
    type: Literal["Normal", "Warning"] = "Normal"
    action: str = "Scale"
    api: str = "v1"
    """The object's API version."""


def news(snapshot: Snapshot, decision: Decision, config: Config) -> Iterator[News]:
    """The events of all pods; those that can never fit come first, as a round has a budget."""
    pods = {pod.uid: pod for pod in snapshot.pods}
    for verdict in sorted(decision.verdicts, key=_urgency):
        reason = _REASONS.get(verdict.outcome)
        why = _why_there(verdict, decision, config)
        note = sentences.verdict(verdict) + why
        if why:
            reason = ELSEWHERE
        for uid in verdict.pods if reason is not None else ():
            if (pod := pods.get(uid)) is not None:
                yield News(
                    kind="Pod",
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=uid,
                    reason=reason or "",
                    note=note,
                    type="Normal" if verdict.outcome in ("coming", "starting") else "Warning",
                )


def _urgency(verdict: Verdict) -> int:
    return ("never", "waits", "starting", "coming", "fits").index(verdict.outcome)


def _why_there(verdict: Verdict, decision: Decision, config: Config) -> str:
    """For machines that start in a group other than its pool's first: why not in the earlier ones."""
    if verdict.outcome != "starting":
        return ""
    started = {group.name: group for group in config.groups if group.name in verdict.where}
    before = [
        words(group, bar)
        for group in config.groups
        if any(group.pool == other.pool and group.order < other.order for other in started.values())
        and (bar := barred(group, decision.memory.backoffs, decision.at)) is not None
    ]
    return "".join(f"; {each}" for each in before)
