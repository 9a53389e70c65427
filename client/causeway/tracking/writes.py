"""Which requests to MLflow can be deferred, as entries of a spool, and the answers that clients get
meanwhile.

Everything stored may be sent twice: MLflow accepts a metric (run, name, value, time, step), parameter or tag
that it already has. A run is looked up by its tag ``causeway.id`` before it is created.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from causeway.tracking.spool import artifacts_of

ID = "causeway.id"
"""Tag: the name by which programs know a run."""
_METRICS, _OTHERS = 1000, 100
"""Maximum number in a request (MLflow, REST API, "Log Batch")."""
_ONE = {"runs/log-metric": "metrics", "runs/log-parameter": "params", "runs/set-tag": "tags"}
_KEPT = ("runs/update", "runs/delete-tag", "runs/log-inputs", "runs/log-model")
BATCH = "runs/log-batch"
CREATE = "runs/create"


def entry_of(call: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the entry for a POST, or None if it cannot be deferred. ``call``: the end of its path."""
    run = body.get("run_id") or body.get("run_uuid")
    if not isinstance(run, str):
        return None
    if kind := _ONE.get(call):
        value = {name: each for name, each in body.items() if name not in ("run_id", "run_uuid")}
        return {"call": BATCH, "body": {"run_id": run, kind: [value]}}
    if call == BATCH or call in _KEPT:
        return {"call": call, "body": dict(body)}
    return None


def merged(entries: Sequence[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Merge entries into few requests, in order: (number of entries in it, request)."""
    count = 0
    batch: dict[str, Any] = {}
    for each in entries:
        if batch and not _fits(batch, each):
            yield count, batch
            count, batch = 0, {}
        if not batch:
            count, batch = 1, {"call": each["call"], "body": dict(each["body"])}
            if each["call"] != BATCH:
                yield count, each
                count, batch = 0, {}
            continue
        count += 1
        for kind in ("metrics", "params", "tags"):
            if values := each["body"].get(kind):
                batch["body"][kind] = [*batch["body"].get(kind, ()), *values]
    if batch:
        yield count, batch


def _fits(batch: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    if more["call"] != BATCH or batch["body"].get("run_id") != more["body"].get("run_id"):
        return False
    one, other = batch["body"], more["body"]
    many = {kind: len(one.get(kind, ())) + len(other.get(kind, ())) for kind in ("metrics", "params", "tags")}
    # If a parameter or a tag is set twice, the order matters.
    keys = {kind: {each["key"] for each in one.get(kind, ())} for kind in ("params", "tags")}
    twice = any(each["key"] in keys[kind] for kind in keys for each in other.get(kind, ()))
    return (
        not twice and sum(many.values()) <= _METRICS and many["params"] <= _OTHERS and many["tags"] <= _OTHERS
    )


def alias_of(experiment: str) -> str:
    """Return the placeholder for an experiment before the server has been asked for it."""
    return "causeway-" + hashlib.sha256(experiment.encode()).hexdigest()[:32]


def experiment_answer(name: str, alias: str) -> dict[str, Any]:
    """Return the answer to ``experiments/get``."""
    return {"experiment": {"experiment_id": alias, "name": name, "lifecycle_stage": "active",
                           "artifact_location": f"mlflow-artifacts:/causeway/{alias}"}}  # fmt: skip


def run_answer(alias: str, experiment: str, name: str, tags: Sequence[Any] = ()) -> dict[str, Any]:
    """Return the answer to ``runs/get``."""
    info = {
        "run_id": alias,
        "run_uuid": alias,
        "run_name": name,
        "experiment_id": experiment,
        "status": "RUNNING",
        "start_time": round(time.time() * 1000),
        "lifecycle_stage": "active",
        "artifact_uri": f"mlflow-artifacts:/{artifacts_of(alias)}",
    }
    return {"run": {"info": info, "data": {"tags": [*tags]}, "inputs": {}}}
