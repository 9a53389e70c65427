"""Follows a run: shows the output of its workers second by second, through restarts and lost connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property

from rich.console import Console
from rich.text import Text
from urllib3.exceptions import HTTPError

from causeway.cluster import leavings, runs
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.runs import Run, Worker
from causeway.cluster.started import recalled, remember, started
from causeway.cluster.store import Store
from causeway.commands.describing import counted, short
from causeway.errors import CausewayError, UnreachableError
from causeway.units import format_duration

_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
"""Seconds between two polls, and the maximum between two retries."""
PATIENCE = 600.0
"""Seconds for which a cluster that does not answer is retried."""
ENDED = (*runs.OVER, "stopped")
Show = Callable[[str, str, str], None]
"""Called with a time, a worker, and a line of its output."""


@dataclass
class _Pod:
    """What has been shown of a pod's output."""

    worker: str
    attempt: int
    created: float
    at: str = ""
    """Time of the last line shown."""
    shown: int = 0
    """Number of lines shown."""
    whole: bool = False
    """Whether all output was printed, or no more can be fetched."""
    tried: bool = False
    """Whether the rest was requested from the store; it is requested once more when the run has ended."""


class Followed:
    """A run that is polled once a second.

    A pod may end and disappear between two polls: its remaining output is then in the store. The lines are in
    the same order there, so the ones already shown are skipped.
    """

    def __init__(
        self,
        out: Console,
        cluster: Cluster,
        namespace: str,
        name: str,
        *,
        shows: Callable[[Run], Show],
        worker: str | None = None,
        attempt: int | None = None,
    ) -> None:
        """``out`` receives everything but worker output. ``shows`` returns the function that receives lines.
        ``worker``, ``attempt``: show only these."""
        self._out = out
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._shows = shows
        self._show: Show = _nothing
        self._worker = worker
        self._wanted = attempt
        self._pods: dict[str, _Pod] = {}
        self._taken: set[tuple[str, int, int]] = set()
        """Starts (worker, attempt, time) that were shown, or began before the first poll."""
        self._attempt: int | None = None
        """The attempt at the last poll."""
        self._first = (0, 0.0)
        """The attempt and the cluster's time at the first poll."""
        self._missed = False
        """Whether a start may have ended unnoticed."""
        self._said = ""
        self._kept = False

    def until_it_ends(self) -> Run:
        """Show new output until the run, or the attempt, has ended. Raises UnreachableError if the cluster
        has not answered for a long time."""
        pause, since = _PAUSE, 0.0
        while True:
            try:
                run = self._look()
                if self._is_over(run):
                    if run.state not in ENDED:
                        return run
                    run = runs.find(self._cluster, self._namespace, self._name)
                    return recalled(self._cluster, [run])[0]
            except (UnreachableError, RefusedError) as error:  # noqa: PERF203  each look by itself
                if not may_pass(error):
                    raise
                now = time.monotonic()
                if not since:
                    since = now
                    self._note(f"{error}; trying again for {format_duration(PATIENCE)}")
                elif now - since >= PATIENCE:
                    raise UnreachableError(
                        f"{error}; {self._name} continues in the cluster: causeway logs -f {self._name}"
                    ) from None
                self._missed = True
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if since:
                    self._note("connected again")
                pause, since = _PAUSE, 0.0
                time.sleep(_PAUSE)

    def _is_over(self, run: Run) -> bool:
        return run.state in ENDED or (self._wanted is not None and run.attempt > self._wanted)

    def _look(self) -> Run:
        run = runs.find(self._cluster, self._namespace, self._name, placed=False)
        self._remember(run)
        if self._attempt is None:
            self._begin(run)
        assert self._attempt is not None
        present = {each.name: each for each in run.workers}
        for each in run.workers:
            pod = _Pod(short(each), each.attempt, each.created.timestamp())
            self._pods.setdefault(each.name, pod)
        gone = [
            pod for name, pod in self._pods.items() if name not in present and not (pod.whole or pod.tried)
        ]
        if gone or self._missed or run.attempt > self._attempt + 1:
            self._show_left(gone)
        self._attempt, self._missed = run.attempt, False
        said = run.waits_for or counted(run.workers)
        if said != self._said and run.state not in ENDED:
            self._note(f"{run.state}: {said}")
            self._said = said
        for worker in run.workers:
            self._show_new(run, worker)
        if run.state in ENDED:
            never = {each.name for each in run.workers if each.state in ("waiting", "starting")}
            lost = [pod for name, pod in self._pods.items() if not pod.whole and name not in never]
            if lost:
                self._show_left(lost)
        return run

    def _begin(self, run: Run) -> None:
        """Skip output from before the first poll."""
        self._attempt = run.attempt
        self._show = self._shows(run)
        if self._wanted is not None:
            self._first = (self._wanted, 0.0)
            self._missed = True  # its output may already have begun
        elif run.workers:
            self._first = (run.attempt, min(each.created for each in run.workers).timestamp())
        else:
            date = self._cluster.date()
            self._first = (run.attempt, parsedate_to_datetime(date).timestamp() if date else time.time())

    def _remember(self, run: Run) -> None:
        """Save what the run was started with, once all of it is known."""
        if not self._kept and started(run).image and all(each.node for each in run.workers):
            remember(self._cluster, [runs.find(self._cluster, self._namespace, self._name)])
            self._kept = True

    def _is_wanted(self, worker: str, attempt: int) -> bool:
        return self._worker in (None, worker) and self._wanted in (None, attempt)

    def _show_new(self, run: Run, worker: Worker) -> None:
        pod = self._pods[worker.name]
        if pod.whole or worker.state not in ("running", "done", "failed"):
            return
        if not self._is_wanted(pod.worker, pod.attempt):
            pod.whole = worker.state != "running"
            return
        lines = stamped(self._cluster, run, worker, pod.at)
        for at, line in lines or ():
            self._show(at, pod.worker, line)
            pod.at = at
            pod.shown += 1
        if worker.state != "running" and lines is not None:
            pod.whole = True

    def _show_left(self, gone: Sequence[_Pod]) -> None:
        """Show what the store has of pods that are gone, and of those that were never seen."""
        pods = sorted(self._pods.values(), key=lambda pod: pod.created)
        try:
            found = leavings.starts(self._store, self._name)
            of_pod = _matched(found, pods)
            for start in found:
                key = (start.worker, start.attempt, start.at)
                pod = of_pod.get(key)
                old = (start.attempt, start.at) < self._first or start.attempt < self._first[0]
                if key in self._taken or (pod is None and old) or (pod is not None and pod not in gone):
                    continue
                self._taken.add(key)
                if self._is_wanted(start.worker, start.attempt):
                    for line in leavings.lines(self._store, start)[pod.shown if pod else 0 :]:
                        self._show("", start.worker, line)
        except CausewayError as error:
            self._note(f"output of workers that ended meanwhile cannot be fetched now: {error}")
            for pod in gone:
                pod.tried = True
            return
        for pod in gone:
            pod.whole = True

    @cached_property
    def _store(self) -> Store:
        return Store(self._cluster, self._namespace)

    def _note(self, text: str) -> None:
        self._out.print(Text(text, style="dim"))


def _matched(found: Sequence[leavings.Start], pods: Sequence[_Pod]) -> dict[tuple[str, int, int], _Pod]:
    """Return start → its pod, for pods that were seen: the first start after the pod's creation."""
    matched: dict[tuple[str, int, int], _Pod] = {}
    for pod in pods:
        for start in found:
            key = (start.worker, start.attempt, start.at)
            mine = (pod.worker, pod.attempt) == (start.worker, start.attempt)
            if mine and key not in matched and start.at >= int(pod.created):
                matched[key] = pod
                break
    return matched


def _nothing(_at: str, _worker: str, _line: str) -> None:
    """Show no line: before the first poll."""


def may_pass(error: CausewayError) -> bool:
    """Whether another try may succeed."""
    return not isinstance(error, RefusedError) or error.code == 429 or error.code >= 500


def stamped(cluster: Cluster, run: Run, worker: Worker, since: str = "") -> list[tuple[str, str]] | None:
    """Return a worker's lines after a time, with their times. None if its machine no longer has them."""
    path = f"/api/v1/namespaces/{run.namespace}/pods/{worker.name}/log"
    query = {"container": "main", "timestamps": "true", **({"sinceTime": since} if since else {})}
    try:
        parted = [line.partition(" ") for line in cluster.lines(path, **query)]
    except RefusedError:
        return None
    except HTTPError as error:  # the connection broke
        raise UnreachableError(f"{cluster.host} does not answer ({error})") from None
    return [(at, text) for at, _, text in parted if at > since]
