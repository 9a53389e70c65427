"""``logs``: prints the output of a run's workers, during the run and afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from heapq import merge

from rich.console import Console
from rich.text import Text

from causeway.cluster import leavings, runs
from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run
from causeway.cluster.store import Store
from causeway.commands.describing import (
    check_worker,
    code_of,
    first,
    names_of_workers,
    plain,
    short,
    state_of,
)
from causeway.commands.failure import show_failure
from causeway.commands.following import ENDED, Followed, Show, stamped
from causeway.commands.run import printer
from causeway.errors import CausewayError, DetachedError

_Line = tuple[str, str, str]
"""Time, worker, text."""


def logs(
    name: str,
    group: str | None,
    *,
    follows: bool,
    worker: str | None,
    attempt: int | None,
    as_json: bool,
) -> int:
    """Print the output of all workers, or of ``worker``, ordered by time: from the pods if they exist, else
    from the store.

    ``attempt``: only this start of the run, counted from 0.
    """
    cluster = Cluster()
    namespace = cluster.namespace(group)
    run = runs.find(cluster, namespace, name, placed=False)
    if worker is not None:
        check_worker(worker, names_of_workers(run))
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    if follows and run.state not in ENDED and (attempt is None or attempt >= run.attempt):
        return follow(
            out, cluster, namespace, name, worker=worker, attempt=attempt,
            show=_as_json if as_json else None, as_json=as_json,
        )  # fmt: skip
    lines = None if attempt is not None else _of_pods(cluster, run, worker)
    if lines is None:
        lines = _of_store(cluster, run, worker, attempt)
    if as_json:
        for line in lines:
            _as_json(*line)
    else:
        found = [*lines]
        show = _printed(out, sorted({who for _, who, _ in found}))
        for line in found:
            show(*line)
    if follows and attempt is None:
        return _show_end(out, runs.find(cluster, namespace, name), as_json=as_json)
    return 0


def _as_json(at: str, who: str, line: str) -> None:
    print(json.dumps({"at": at, "worker": who, "line": line}, ensure_ascii=False), flush=True)


def _printed(out: Console, names: Sequence[str]) -> Show:
    show = printer(out, names)
    return lambda _, who, line: show(who, line)


def _of_pods(cluster: Cluster, run: Run, worker: str | None) -> Iterator[_Line] | None:
    """Yield the output of the pods. None if a pod's output cannot be read any more, or no pods are left."""
    wanted = [each for each in run.workers if worker in (None, short(each))]
    streams = []
    for each in wanted:
        if each.state in ("waiting", "starting"):
            continue
        lines = stamped(cluster, run, each)
        if lines is None:
            return None
        streams.append([(at, short(each), text) for at, text in lines])
    return merge(*streams) if wanted else None


def _of_store(cluster: Cluster, run: Run, worker: str | None, attempt: int | None) -> Iterator[_Line]:
    store = Store(cluster, run.namespace)
    found = leavings.attempts(store, run.name)
    wanted = next((each for each in reversed(found) if attempt in (None, each.number)), None)
    if wanted is None and attempt is not None:
        numbers = ", ".join(str(each.number) for each in found) or "none"
        raise CausewayError(f"{run.name} has no output of attempt {attempt}; there is: {numbers}")
    if wanted is not None:
        yield from (each for each in leavings.output(store, wanted) if worker in (None, each[1]))


def follow(
    out: Console,
    cluster: Cluster,
    namespace: str,
    name: str,
    *,
    as_json: bool,
    worker: str | None = None,
    attempt: int | None = None,
    show: Show | None = None,
) -> int:
    """Show a run, or one worker or attempt of it, until it ends; return the exit code. Raises DetachedError
    on Ctrl-C and UnreachableError if the cluster stays away: both mention that the run continues.

    ``show`` receives lines; by default they are printed to ``out``.
    """

    def shows(run: Run) -> Show:
        return show or _printed(out, [worker] if worker else names_of_workers(run))

    try:
        followed = Followed(out, cluster, namespace, name, shows=shows, worker=worker, attempt=attempt)
        run = followed.until_it_ends()
    except KeyboardInterrupt:
        raise DetachedError(
            f"{name} continues in the cluster: causeway logs -f {name}; causeway stop {name}"
        ) from None
    return 0 if run.state not in ENDED else _show_end(out, run, as_json=as_json)


def _show_end(out: Console, run: Run, *, as_json: bool) -> int:
    failed = runs.first_failed(run)
    out.print(state_of(run))
    if failed is not None and run.state == "failed":
        show_failure(out, first(failed) or {}, code_of(run))
    elif run.state != "done" and (run.reason or run.waits_for):
        out.print(Text(f"  {run.reason or run.waits_for}"))
    if as_json:
        print(json.dumps({**plain(run), "first_failure": first(failed)}))
    return 0 if run.state == "done" else 1
