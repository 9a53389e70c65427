"""Determines the state of a run on machines from their answers. No I/O."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ENDED = ("done", "failed", "stopped", "timed-out")
_RESULTS = {
    "disk-full": "the disk of {host} is full, so its state could not be written",
    "oom-kill": "{host} ran out of memory, and the kernel killed it",
    "timeout": "it did not exit within `grace`, and was killed",
    "signal": "its process was killed on {host}",
}
"""systemd's result of a unit (systemd.service(5), ``Result``), or ours → its explanation."""


@dataclass(frozen=True)
class Worker:
    """A worker of a run."""

    name: str
    host: str
    state: str
    """``starting``, ``waiting``, ``running``, ``done``, ``failed``, ``stopped``, ``lost``, ``unknown``."""
    gpus: tuple[int, ...] = ()
    reason: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    """The runtime's record of its end."""
    is_cut: bool = False
    """Whether its machine went away, so that the worker is not to blame."""


@dataclass(frozen=True)
class Run:
    """A run as its machines know it."""

    name: str
    state: str
    """``starting``, ``waiting`` (for GPUs), ``running``, ``done``, ``failed``, ``stopped``, ``timed-out``,
    ``unknown``."""
    since: float
    """When its state last changed."""
    reason: str
    workers: tuple[Worker, ...]
    first: Mapping[str, Any] | None
    """The record of the worker that failed first."""
    kept: bool
    """Whether it has a checkpoint."""
    record: Mapping[str, Any]
    stopped_by: str = ""
    """Who stopped it."""

    @property
    def interrupted(self) -> bool:
        """Whether it failed because a machine went away."""
        return self.state == "failed" and self.first is None and any(each.is_cut for each in self.workers)

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(worker.host for worker in self.workers))


def run_of(
    name: str, record: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]], faults: Mapping[str, str]
) -> Run:
    """``answers``: machine → what it knows about this run, an item of ``status`` with the machine's
    ``booted``. ``faults``: machine → why it did not answer."""
    workers = tuple(
        _worker(worker, each["host"], answers.get(each["host"]), faults.get(each["host"], ""))
        for worker, each in record["workers"].items()
    )
    first = next(worker for worker in workers if worker.name == record["first"])
    leader = answers.get(first.host, {})
    outcome = leader.get("outcome") or {}
    stopped: Mapping[str, str] = next(
        (each["stopped"] for each in answers.values() if each.get("stopped")), {}
    )
    lost = [worker for worker in workers if worker.state in ("lost", "failed")]
    reason, failed = "", None
    since = record["started"]
    if outcome:
        state, reason, since, failed = (outcome[key] for key in ("state", "reason", "at", "first"))
        if failed and failed.get("lost"):
            reason, failed = _lost(failed, workers), None
    elif first.state == "unknown":
        state, reason = "unknown", first.reason
    elif first.state in ("lost", "failed") or (
        lost and first.state not in ("running", "waiting", "starting")
    ):
        cause = first if first.state in ("lost", "failed") else lost[0]
        state, reason = "failed", f"{cause.name}: {cause.reason}" if cause.reason else ""
        since = max((said["at"] for said in _notes(leader)), default=since)
    else:
        states = {worker.state for worker in workers}
        state = next((each for each in ("running", "waiting") if each in states), "starting")
        if state == "waiting":
            # A worker that could have its GPUs is waiting for the others.
            waits = [worker for worker in workers if worker.state == "waiting"]
            reason = min(waits, key=lambda worker: bool(worker.status.get("ready"))).reason
        elif first.state == "running":
            since = first.status["at"]
    return Run(
        name, state, since, reason, workers, failed if state == "failed" else None,
        any(said.get("kept") for said in answers.values()), record, stopped.get("by", ""),
    )  # fmt: skip


def _lost(failed: Mapping[str, Any], workers: tuple[Worker, ...]) -> str:
    """Explain why a worker was lost: its machine, once it answers again, knows more than the first one."""
    name = f"{failed['role']}-{failed['rank']}"
    own = next((worker.reason for worker in workers if worker.name == name and worker.state == "lost"), "")
    return f"{name}: {own or failed['reason']}"


def _notes(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*answer.get("workers", {}).values()]


def _worker(name: str, host: str, answer: Mapping[str, Any] | None, fault: str) -> Worker:
    if answer is None:
        why = fault or f"{host} has no record of this run any more"
        return Worker(name, host, "unknown", reason=why, is_cut=bool(fault))
    said = answer["workers"].get(name)
    if said is None:
        return Worker(name, host, "starting")
    gpus = tuple(said.get("gpus", ()))
    if said["phase"] == "lost":
        why = _why_lost(said, host, answer["booted"])
        return Worker(name, host, "lost", gpus, why, is_cut=said["why"] == "rebooted")
    if said["phase"] == "waiting":
        return Worker(name, host, "waiting", (), _why_waiting(said), said)
    if said["phase"] != "over":
        return Worker(name, host, {"leased": "starting"}.get(said["phase"], said["phase"]), gpus, status=said)
    if said.get("problem"):
        return Worker(name, host, "failed", gpus, f"{host}: {said['problem']}", said)
    state = {0: "done", 75: "stopped"}.get(said.get("exit", 1), "failed")
    why = said.get("why") or said.get("reason", "")
    return Worker(name, host, state, gpus, why, said, is_cut=said.get("asked") == "system")


def _why_waiting(said: Mapping[str, Any]) -> str:
    """Explain why it is waiting: ``waits, 2nd in its queue behind ada (resnet-1, since 2026-11-25
    14:05)``."""
    if not said.get("place"):
        return "waits for GPUs"
    if said["ready"]:
        return "waits for the GPUs of other workers"
    behind = f" behind {said['behind']}" if said["behind"] else ""
    why = f": {said['why']}" if said["why"] and not behind else ""
    return f"waits, {_ordinal(said['place'])} in its queue{behind}{why}"


def _ordinal(number: int) -> str:
    end = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{end}"


def _why_lost(said: Mapping[str, Any], host: str, booted: float) -> str:
    if said["why"] == "rebooted":
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(booted))
        return f"{host} was rebooted; it is up since {at}"
    return _RESULTS.get(said["why"], "its process on {host} is gone").format(host=host)
