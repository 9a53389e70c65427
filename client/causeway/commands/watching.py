"""``ps``, ``logs``, ``why``, ``stop``, ``resume``, ``code``: runs of the cluster."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from causeway.cluster import runs
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.runs import Run, Worker
from causeway.commands.failure import show_failure
from causeway.commands.run import printer
from causeway.commands.waiting import WAITS, wait
from causeway.errors import CausewayError, DetachedError
from causeway.units import format_duration

_PAUSE = 1.0
_STYLES = {
    "done": "green", "failed": "red", "timed-out": "red", "running": "cyan", "queued": "yellow",
    "stopped": "yellow",
}  # fmt: skip
_ENDED = ("done", "failed", "timed-out", "stopped")
_UTC = timezone.utc


def ps(group: str | None, *, as_json: bool) -> int:
    """The runs of a namespace."""
    cluster = Cluster()
    found = runs.runs(cluster, cluster.namespace(group))
    if as_json:
        print(json.dumps([_plain(each) for each in found]))
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("RUN", "STATE", "FOR", "WORKERS", "RESTARTS", "ON", "COST", "BY"):
        table.add_column(title, overflow="fold")
    for each in found:
        since = (datetime.now(_UTC) - each.since).total_seconds()
        cost = "" if each.cost is None else f"${each.cost:,.2f}"
        table.add_row(
            each.name, Text(each.state, style=_STYLES.get(each.state, "")), format_duration(since),
            _counted(each.workers), str(each.restarts), _places(each.workers), cost, each.person,
        )  # fmt: skip
    Console(highlight=False).print(table)
    return 0


def _counted(workers: Sequence[Worker]) -> str:
    """``3 running, 1 failed``."""
    states = [worker.state for worker in workers]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _places(workers: Sequence[Worker]) -> str:
    """``titan-1, titan-2 in rack-a``; of more than three machines their number."""
    sites: dict[str, dict[str, None]] = {}
    for worker in workers:
        if worker.node:
            sites.setdefault(worker.site or "", {})[worker.node] = None
    return "; ".join(
        (", ".join(nodes) if len(nodes) <= 3 else f"{len(nodes)} machines") + (f" in {site}" if site else "")
        for site, nodes in sorted(sites.items())
    )


def why(name: str, group: str | None, *, as_json: bool) -> int:
    """One answer: why a run waits, or why it failed."""
    cluster = Cluster()
    run = runs.find(cluster, cluster.namespace(group), name)
    out = Console(highlight=False, soft_wrap=True)
    failed = runs.first_failed(run)
    waits = wait(cluster, run) if run.state in WAITS else None
    if as_json:
        waiting = None if waits is None else _jsonable(waits.plain())
        print(json.dumps({**_plain(run), "first_failure": _first(failed), "waiting": waiting}))
        return 0
    out.print(Text.assemble((f"{run.name} {run.state}", _STYLES.get(run.state, ""))))
    if run.waits_for:
        out.print(Text(f"  {run.waits_for}"))
    for line in waits.lines() if waits is not None else ():
        out.print(Text(f"  {line}"))
    if failed is not None:
        show_failure(out, _first(failed) or {})
    elif run.reason:
        out.print(Text(f"  {run.reason}"))
    return 0


def logs(name: str, group: str | None, *, follows: bool) -> int:
    """The output of all workers."""
    cluster = Cluster()
    namespace = cluster.namespace(group)
    run = runs.find(cluster, namespace, name)
    if follows:
        return follow(Console(highlight=False, soft_wrap=True), cluster, namespace, name, as_json=False)
    show = printer(Console(highlight=False, soft_wrap=True), [_short(each) for each in run.workers])
    for worker in run.workers:
        for line in _log(cluster, run, worker, since=None)[0]:
            show(_short(worker), line)
    return 0


def stop(names: Sequence[str], group: str | None) -> int:
    """Take runs out of their queue; they keep their record."""
    return _activate(names, group, active=False)


def resume(names: Sequence[str], group: str | None) -> int:
    """Put stopped runs back into their queue."""
    return _activate(names, group, active=True)


def _activate(names: Sequence[str], group: str | None, *, active: bool) -> int:
    cluster, out = Cluster(), Console(highlight=False)
    namespace = cluster.namespace(group)
    for name in names:
        changed = runs.activate(cluster, runs.find(cluster, namespace, name), active=active)
        word = "is queued again" if active else "is stopped"
        out.print(f"{name} {word}" if changed else f"{name} {word} already")
    return 0


def code(name: str, group: str | None, target: str) -> int:
    """Write the code of a run into a folder that is not there yet."""
    from causeway.cluster.store import Store
    from causeway.code.archive import unpack

    cluster = Cluster()
    namespace = cluster.namespace(group)
    run = runs.find(cluster, namespace, name)
    if not run.code:
        raise CausewayError(f"{name} was submitted without code")
    folder = Path(target or name)
    if folder.exists():
        raise CausewayError(f"{folder} exists; name another folder")
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "code.tar.gz")
        Store(cluster, namespace).get_code(run.code, archive)
        with archive.open("rb") as packed:
            unpack(packed, run.code, folder)
    Console(highlight=False).print(f"{name}'s code is in {folder}")
    return 0


def follow(out: Console, cluster: Cluster, namespace: str, name: str, *, as_json: bool) -> int:
    """Show a run until it ends; returns the exit code. DetachedError on Ctrl-C."""
    try:
        run = _followed(out, cluster, namespace, name)
    except KeyboardInterrupt:
        raise DetachedError(
            f"{name} goes on in the cluster: causeway logs -f {name}; causeway stop {name}"
        ) from None
    failed = runs.first_failed(run)
    out.print(Text.assemble((f"{run.name} {run.state}", _STYLES.get(run.state, ""))))
    if run.state != "done":
        if failed is not None and run.state == "failed":
            show_failure(out, _first(failed) or {})
        elif run.reason or run.waits_for:
            out.print(Text(f"  {run.reason or run.waits_for}"))
    if as_json:
        print(json.dumps({**_plain(run), "first_failure": _first(failed)}))
    return 0 if run.state == "done" else 1


def _followed(out: Console, cluster: Cluster, namespace: str, name: str) -> Run:
    """Prints what is new of all workers once a second, until the run has ended."""
    seen: dict[str, str | None] = {}
    last = ""
    while True:
        run = runs.find(cluster, namespace, name, placed=False)
        show = printer(out, [_short(each) for each in run.workers])
        said = run.waits_for or _counted(run.workers)
        if said != last and run.state not in _ENDED:
            out.print(Text(f"{run.state}: {said}", style="dim"))
            last = said
        for worker in run.workers:
            if worker.state in ("running", "done", "failed"):
                lines, seen[worker.name] = _log(cluster, run, worker, since=seen.get(worker.name))
                for line in lines:
                    show(_short(worker), line)
        if run.state in _ENDED:
            return runs.find(cluster, namespace, name)
        time.sleep(_PAUSE)


def _log(cluster: Cluster, run: Run, worker: Worker, *, since: str | None) -> tuple[list[str], str | None]:
    """A worker's lines after a time stamp, and the newest one's; none while its container has not started."""
    path = f"/api/v1/namespaces/{run.namespace}/pods/{worker.name}/log"
    query = {"container": "main", "timestamps": "true", **({"sinceTime": since} if since else {})}
    try:
        stamped = list(cluster.lines(path, **query))
    except RefusedError:
        return [], since
    fresh = [line.partition(" ") for line in stamped if since is None or line.partition(" ")[0] > since]
    return [text for _, _, text in fresh], fresh[-1][0] if fresh else since


def _short(worker: Worker) -> str:
    return f"{worker.role}-{worker.rank}"


def _first(worker: Worker | None) -> dict[str, Any] | None:
    if worker is None:
        return None
    return {"role": worker.role, "rank": worker.rank, "node": worker.node, **(worker.ended or {})}


def _plain(run: Run) -> dict[str, Any]:
    """As JSON has it: times as text."""
    return _jsonable({**asdict(run), "cost": run.cost})


def _jsonable(values: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(values, default=datetime.isoformat))  # type: ignore[no-any-return]
