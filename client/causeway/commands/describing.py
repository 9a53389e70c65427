"""A run and its workers, in a few words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.text import Text

from causeway.cluster.runs import Run, Worker

_STYLES = {
    "done": "green", "failed": "red", "timed-out": "red", "running": "cyan", "queued": "yellow",
    "stopped": "yellow",
}  # fmt: skip


def state_of(run: Run, *, named: bool = True) -> Text:
    """Its state in its colour, after its name."""
    text = f"{run.name} {run.state}" if named else run.state
    return Text(text, style=_STYLES.get(run.state, ""))


def counted(workers: Sequence[Worker]) -> str:
    """``3 running, 1 failed``."""
    states = [worker.state for worker in workers]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def places(workers: Sequence[Worker]) -> str:
    """``titan-1, titan-2 in rack-a``; of more than three machines their number."""
    sites: dict[str, dict[str, None]] = {}
    for worker in workers:
        if worker.node:
            sites.setdefault(worker.site or "", {})[worker.node] = None
    return "; ".join(
        (", ".join(nodes) if len(nodes) <= 3 else f"{len(nodes)} machines") + (f" in {site}" if site else "")
        for site, nodes in sorted(sites.items())
    )


def short(worker: Worker) -> str:
    """``worker-3``."""
    return f"{worker.role}-{worker.rank}"


def first(worker: Worker | None) -> dict[str, Any] | None:
    """What is known of the worker that failed first."""
    if worker is None:
        return None
    return {"role": worker.role, "rank": worker.rank, "node": worker.node, **(worker.ended or {})}


def plain(run: Run) -> dict[str, Any]:
    """A run for JSON."""
    return jsonable({**asdict(run), "cost": run.cost})


def jsonable(values: dict[str, Any]) -> dict[str, Any]:
    """Times as text."""
    return json.loads(json.dumps(values, default=datetime.isoformat))  # type: ignore[no-any-return]
