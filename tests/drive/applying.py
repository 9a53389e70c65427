"""Apply what was planned last, as `invoke apply` does in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable

from infra.drive import lifecycle
from infra.drive.lifecycle import Job
from infra.drive.saved import load
from infra.drive.terraform import Listener


def apply_saved(job: Job, *, named: Iterable[str] = (), listener: Listener | None = None) -> None:
    found = load(job.folders)
    assert found is not None, "nothing was planned"
    lifecycle.apply(job, found, named=named, listener=listener)
