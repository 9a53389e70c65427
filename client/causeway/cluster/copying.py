"""What the store knows about a run: its last checkpoint, and errors of copying."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.fit import fits_of
from causeway.cluster.prices import of_moving
from causeway.cluster.runs import Run
from causeway.cluster.saved import LINES, Saved, remember
from causeway.cluster.store import Store, asked
from causeway.errors import CausewayError
from causeway.job import Job
from causeway.keep import COPIED, NOT_COPIED
from causeway.kept import Row, newest
from causeway.saving import parts_in
from causeway.workers import policy_of, workers_of


@dataclass(frozen=True)
class Copying:
    """State of copying a run's checkpoints, output and results."""

    saved: Row | None
    """The checkpoint that it would resume from; None if there is none, or if the store does not answer."""
    moving: Mapping[str, float]
    """Site → USD that AWS charges if the run resumes there from that checkpoint. Sites without a charge are
    left out."""
    problem: str
    """Error of a worker that cannot copy: the bucket is full, or refuses the request."""


def copying(cluster: Cluster, run: Run) -> Copying:
    """Collect the state from the store and the workers' sidecars. Sources that do not answer are left out."""
    try:
        job = Job.model_validate(run.job)
        workers = workers_of(job)
        policy = policy_of(job, workers)
    except (CausewayError, ValueError):  # written by another version of this program
        return Copying(None, {}, "")
    saved, store = None, Store(cluster, run.namespace)
    with suppress(CausewayError), asked("look for checkpoints"):
        found = (parts_in(store.of_run(name, "checkpoints/")) for name in (run.name, *run.continues))
        saved = next(filter(None, (newest(parts, policy) for parts in found)), None)
    if saved is not None:
        remember(cluster, run.namespace, Saved(run.name, saved.name, saved.part_size, 0.0, saved.written))
    moving: dict[str, float] = {}
    if saved and job.checkpoints.volume is None and run.state not in ("running", "done"):
        sites = {each.site for each in run.workers if each.site} or {
            machine.site for fit in fits_of(run.job, cluster.offer) for machine in fit.machines
        }
        count = sum(each.count for each in workers)
        moving = of_moving(saved.size, count, sites, cluster.offer.store.usd_per_gb)
    problems = (
        f"{each.role}-{each.rank}: {said}"
        for each in run.workers
        if each.state == "running" and f"{each.role}-{each.rank}" in policy.workers
        if (said := _said(cluster, run, each.name))
    )
    return Copying(saved, moving, next(problems, ""))


def _said(cluster: Cluster, run: Run, pod: str) -> str:
    path = f"/api/v1/namespaces/{run.namespace}/pods/{pod}/log"
    with suppress(RefusedError):
        return last_problem(cluster.lines(path, container="keep", tailLines=LINES))
    return ""


def last_problem(lines: Iterable[str]) -> str:
    """Return what the sidecar could not copy, and has not copied since; empty if nothing."""
    problem = ""
    for line in lines:
        if line.startswith(NOT_COPIED):
            problem = line.removeprefix(NOT_COPIED).strip()
        elif line.startswith(COPIED):
            problem = ""
    return problem
