"""What MLflow records about each run without any code in the program."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from causeway.reported import Report
from causeway.tracking.writes import BATCH, CREATE

OURS = "causeway."
"""Prefix of our tags."""
CHECKPOINT = f"{OURS}checkpoint"
"""Tag: name of the last checkpoint of the logging worker that is complete in the store."""
LONGEST, LONGEST_TAG = 6000, 5000
"""Maximum length of parameters and tags in characters. MLflow accepts 6,000 and 8,000
(``mlflow.utils.validation``), older databases only 5,000 for a tag."""
_NAME = re.compile(r"[/\w.\- :]+")
_LONGEST_NAME = 250
_MIB = 2**20 / 1e6
_FINISHED = {0: "FINISHED", 75: "KILLED"}
"""Exit code of ``causeway.runtime`` → state of a run."""


@dataclass(frozen=True)
class Place:
    """A site where a run may be placed."""

    gpu: str | None
    """Model of the GPUs; None without GPUs, or if there are several models."""
    least: float | None
    """Hourly price in USD of all workers there; None if unknown."""
    most: float | None


@dataclass(frozen=True)
class Record:
    """What is known when a run is submitted."""

    url: str
    workspace: str
    run: str
    experiment: str
    worker: str
    """The worker that logs: the first."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> Record:
        """Parse a record. Raises KeyError, TypeError, ValueError. Unknown fields of a newer client are
        ignored."""
        found = json.loads(text)
        known = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
        known["places"] = {site: Place(**each) for site, each in known.get("places", {}).items()}
        return cls(**known)


def batch(
    run: str,
    parameters: Mapping[str, str] | None = None,
    tags: Mapping[str, object] | None = None,
    metrics: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return an entry of a spool."""
    kinds = {
        "params": [{"key": key, "value": value} for key, value in (parameters or {}).items()],
        "tags": [{"key": key, "value": str(value)[:LONGEST_TAG]} for key, value in (tags or {}).items()],
        "metrics": [*metrics],
    }
    return {"call": BATCH, "body": {"run_id": run, **{k: v for k, v in kinds.items() if v}}}


def metrics_of(report: Report) -> list[dict[str, Any]]:
    """Return the metrics that a program reported for a step, for ``batch``. Names that MLflow rejects are
    left out, as it would reject the whole batch."""
    at = round(report.at * 1000)
    return [
        {"key": name, "value": _number(value), "timestamp": at, "step": report.step}
        for name, value in report.metrics.items()
        if is_name(name)
    ]


def is_name(name: str) -> bool:
    """Whether MLflow accepts a name for a metric (``mlflow.utils.validation``)."""
    path = posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))
    return path and len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def usage_of(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return metrics of a worker's usage, from a line of ``causeway.runtime``. MLflow shows these names as
    system metrics ("System Metrics"); its own collector does not use them. The step is the time in seconds,
    which increases across starts."""
    gpus = said.get("gpus") or ()
    used = [gpu["use"] for gpu in gpus if gpu.get("use") is not None]
    memory = [gpu["memory"] for gpu in gpus if gpu.get("memory") is not None]
    total = sum(gpu.get("total") or 0 for gpu in gpus)
    found = {
        "gpu_utilization_percentage": sum(used) / len(used) if used else None,
        "gpu_memory_usage_megabytes": sum(memory) * _MIB if memory else None,
        "gpu_memory_usage_percentage": 100 * sum(memory) / total if memory and total else None,
        "cpus": said.get("cpus"),
        "memory_usage_megabytes": said["memory"] / 1e6 if "memory" in said else None,
    }
    at = float(said["at"]) if "at" in said else None
    return [
        {"key": f"system/{name}", "value": _number(value), "timestamp": round(at * 1000), "step": round(at)}
        for name, value in found.items()
        if value is not None and at is not None
    ]


def _number(value: float) -> float | str:
    """Format a number for MLflow's API (protobuf, "JSON Mapping")."""
    if value != value:
        return "NaN"
    return ("Infinity" if value > 0 else "-Infinity") if value in (float("inf"), -float("inf")) else value


def ended(run: str, said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield entries for the end of a worker, from the runtime's record."""
    code = int(said["exit"])
    lines = said.get("lines") or [""]
    reason = said.get("reason") or said.get("signal") or (str(lines[-1]) if code else "")
    yield batch(run, tags={f"{OURS}exit": code, f"{OURS}reason": reason})
    state = {"status": _FINISHED.get(code, "FAILED"), "end_time": round(float(said["at"]) * 1000)}
    yield {"call": "runs/update", "body": {"run_id": run, **state}}


def site_of(places: Mapping[str, Place], zone: str, region: str) -> str | None:
    """Return a pod's site, by the labels that it has from its node; None if they do not identify one."""
    if len(places) == 1:
        return next(iter(places))
    return next((name for name in (zone, region) if name in places), None)


def cost_of(place: Place | None, hours: float) -> str | None:
    """Format the cost in USD: one amount, or a range if a site has several prices."""
    if place is None or place.least is None or place.most is None:
        return None
    least, most = (f"{price * hours:.2f}" for price in (place.least, place.most))
    return least if least == most else f"{least} to {most}"


def before(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what still holds of an earlier start's entry once a later one has begun: no state, none of our
    tags."""
    if entry["call"] == "runs/update":
        return None
    tags = [each for each in entry["body"].get("tags", ()) if not each["key"].startswith(OURS)]
    return {**entry, "body": {**entry["body"], "tags": tags}} if entry["call"] != CREATE else entry
