"""Applying the saved plan of a job, and reading its state."""

from __future__ import annotations

from collections.abc import Iterable

from infra.drive import lifecycle, repair
from infra.drive.lifecycle import Job
from infra.drive.saved_plan import load
from infra.drive.terraform import Listener


def apply_saved(
    job: Job, *, named: Iterable[str] = (), listener: Listener | None = None
) -> lifecycle.Outcome:
    """Apply what was planned last, as ``invoke apply`` does in a process of its own."""
    saved = load(job.folders)
    assert saved is not None, "nothing was planned"
    return lifecycle.apply(job, saved, named=named, listener=listener)


def in_state(job: Job) -> list[str]:
    """The addresses of the resources in the state."""
    return sorted(repair.held(lifecycle.stored(job)))
