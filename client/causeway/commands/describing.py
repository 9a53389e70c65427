"""Formats a run and its workers for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from causeway.errors import CausewayError, InputError, Problem

if TYPE_CHECKING:
    from causeway.cluster.runs import Run, Worker
    from causeway.job import Code

_STYLES = {
    "done": "green", "failed": "red", "timed-out": "red", "running": "cyan", "queued": "yellow",
    "stopped": "yellow",
}  # fmt: skip
_MOST = 8
"""Maximum number of worker names in a message."""


def state_of(run: Run, *, named: bool = True) -> Text:
    """Return the state of a run in its colour, after its name."""
    return coloured(f"{run.name} {run.state}" if named else run.state, run.state)


def coloured(text: str, state: str) -> Text:
    """Return a text in the colour of a state."""
    return Text(text, style=_STYLES.get(state, ""))


def counted(workers: Sequence[Worker]) -> str:
    """Count states: ``3 running, 1 failed``."""
    states = ["blocked" if worker.blocked else worker.state for worker in workers]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def counted_files(count: int) -> str:
    """Format a number of files: ``1 file``, ``3 files``."""
    return "1 file" if count == 1 else f"{count} files"


def short(worker: Worker) -> str:
    """Return the short name of a worker: ``worker-3``."""
    return f"{worker.role}-{worker.rank}"


def names_of_workers(run: Run) -> list[str]:
    """Return the names of all workers of a run's job (``worker-0``, …), whether they are running or not."""
    from causeway.job import Job
    from causeway.workers import workers_of

    try:
        roles = workers_of(Job.model_validate(run.job))
    except (CausewayError, ValueError):  # written by another version of this program
        return sorted({short(each) for each in run.workers})
    return [f"{each.role}-{rank}" for each in roles for rank in range(each.count)]


def check_worker(worker: str | None, names: Sequence[str]) -> None:
    """Raise InputError if a run does not have this worker."""
    if worker is not None and names and worker not in names:
        there = ", ".join(names[:_MOST]) + (f" … {names[-1]}" if len(names) > _MOST else "")
        raise InputError([Problem("--worker", "", f"{worker} not found", f"workers are: {there}")])


def first(worker: Worker | None) -> dict[str, Any] | None:
    """Return what is known about the worker that failed first."""
    if worker is None:
        return None
    return {"role": worker.role, "rank": worker.rank, "node": worker.node, **(worker.ended or {})}


def code_of(run: Run) -> Code | Literal[False]:
    """Return the files that were shipped with a run."""
    from causeway.job import Job  # importing it takes a tenth of a second

    try:
        return Job.model_validate(run.job).code
    except ValueError:  # written by another version of this program
        return False


def plain(run: Run) -> dict[str, Any]:
    """Return a run as a JSON object."""
    return jsonable({**asdict(run), "cost": run.cost})


def gone(name: str) -> str:
    """Return the message that a run's code has expired, and the fix."""
    return f"the code of {name} is not in the store any more; submit it from a folder: causeway run"


def jsonable(values: dict[str, Any]) -> dict[str, Any]:
    """Convert times to text."""
    return json.loads(json.dumps(values, default=datetime.isoformat))  # type: ignore[no-any-return]
