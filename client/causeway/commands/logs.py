"""``logs``: the output of a run's workers, while they run and after."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from heapq import merge

from rich.console import Console
from rich.text import Text

from causeway.cluster import leavings, runs
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.runs import Run, Worker
from causeway.cluster.started import remember, started
from causeway.cluster.store import Store
from causeway.commands.describing import code_of, counted, first, plain, short, state_of
from causeway.commands.failure import show_failure
from causeway.commands.run import printer
from causeway.errors import CausewayError, DetachedError

_PAUSE = 1.0
_ENDED = ("done", "failed", "timed-out", "stopped")
_Line = tuple[str, str, str]
"""A time, a worker, a text."""


def logs(
    name: str,
    group: str | None,
    *,
    follows: bool,
    worker: str | None,
    attempt: int | None,
    as_json: bool,
) -> int:
    """The output of all workers, or of ``worker``, by time: of the pods that are there, else of the store.

    ``attempt``: of an earlier start; 0 is the first.
    """
    cluster = Cluster()
    namespace = cluster.namespace(group)
    run = runs.find(cluster, namespace, name, placed=False)
    out = Console(highlight=False, soft_wrap=True)
    if follows:
        return follow(out, cluster, namespace, name, as_json=as_json)
    lines = None if attempt is not None else _of_pods(cluster, run, worker)
    if lines is None:
        lines = _of_store(cluster, run, worker, attempt)
    if as_json:
        for at, who, line in lines:
            print(json.dumps({"at": at, "worker": who, "line": line}, ensure_ascii=False))
        return 0
    found = list(lines)
    show = printer(out, sorted({who for _, who, _ in found}))
    for _, who, line in found:
        show(who, line)
    return 0


def _of_pods(cluster: Cluster, run: Run, worker: str | None) -> Iterator[_Line] | None:
    """None if a pod's output can't be had any more, or there are no pods."""
    wanted = [each for each in run.workers if worker in (None, short(each))]
    streams = []
    for each in wanted:
        if each.state in ("waiting", "starting"):
            continue
        stamped = _stamped(cluster, run, each)
        if stamped is None:
            return None
        streams.append([(at, short(each), text) for at, text in stamped])
    return merge(*streams) if wanted else None


def _of_store(cluster: Cluster, run: Run, worker: str | None, attempt: int | None) -> Iterator[_Line]:
    store = Store(cluster, run.namespace)
    found = leavings.attempts(store, run.name)
    wanted = next((each for each in reversed(found) if attempt in (None, each.number)), None)
    if wanted is None and attempt is not None:
        numbers = ", ".join(str(each.number) for each in found) or "none"
        raise CausewayError(f"{run.name} left no output of attempt {attempt}; there is: {numbers}")
    if wanted is not None:
        yield from (each for each in leavings.output(store, wanted) if worker in (None, each[1]))


def follow(out: Console, cluster: Cluster, namespace: str, name: str, *, as_json: bool) -> int:
    """Show a run until it ends; returns the exit code. DetachedError on Ctrl-C."""
    try:
        run = _followed(out, cluster, namespace, name)
    except KeyboardInterrupt:
        raise DetachedError(
            f"{name} goes on in the cluster: causeway logs -f {name}; causeway stop {name}"
        ) from None
    failed = runs.first_failed(run)
    out.print(state_of(run))
    if failed is not None and run.state == "failed":
        show_failure(out, first(failed) or {}, code_of(run))
    elif run.state != "done" and (run.reason or run.waits_for):
        out.print(Text(f"  {run.reason or run.waits_for}"))
    if as_json:
        print(json.dumps({**plain(run), "first_failure": first(failed)}))
    return 0 if run.state == "done" else 1


def _followed(out: Console, cluster: Cluster, namespace: str, name: str) -> Run:
    """Prints what is new of all workers once a second, until the run has ended."""
    seen: dict[str, str] = {}
    last, kept = "", False
    while True:
        run = runs.find(cluster, namespace, name, placed=False)
        if not kept and started(run).image:
            remember(cluster, [runs.find(cluster, namespace, name)])
            kept = True
        show = printer(out, [short(each) for each in run.workers])
        said = run.waits_for or counted(run.workers)
        if said != last and run.state not in _ENDED:
            out.print(Text(f"{run.state}: {said}", style="dim"))
            last = said
        for worker in run.workers:
            if worker.state in ("running", "done", "failed"):
                since = seen.get(worker.name, "")
                for at, line in _stamped(cluster, run, worker, since) or ():
                    show(short(worker), line)
                    seen[worker.name] = at
        if run.state in _ENDED:
            return runs.find(cluster, namespace, name)
        time.sleep(_PAUSE)


def _stamped(cluster: Cluster, run: Run, worker: Worker, since: str = "") -> list[tuple[str, str]] | None:
    """A worker's lines after a time, each with its own; None if its machine does not have them (any more)."""
    path = f"/api/v1/namespaces/{run.namespace}/pods/{worker.name}/log"
    query = {"container": "main", "timestamps": "true", **({"sinceTime": since} if since else {})}
    try:
        parted = [line.partition(" ") for line in cluster.lines(path, **query)]
    except RefusedError:
        return None
    return [(at, text) for at, _, text in parted if at > since]
