"""``ps``, ``why``, ``stop``, ``resume``: runs of the cluster, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from causeway.cluster import runs
from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run
from causeway.commands.describing import counted, first, jsonable, places, plain, state_of
from causeway.commands.failure import show_failure
from causeway.commands.waiting import WAITS, wait
from causeway.errors import CausewayError, UnreachableError
from causeway.units import format_duration

_UTC = timezone.utc


def ps(group: str | None, *, as_json: bool) -> int:
    """The runs of a namespace."""
    cluster = Cluster()
    found = runs.runs(cluster, cluster.namespace(group))
    if as_json:
        print(json.dumps([plain(each) for each in found]))
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("RUN", "STATE", "FOR", "WORKERS", "RESTARTS", "ON", "COST", "BY"):
        table.add_column(title, overflow="fold")
    for each in found:
        since = (datetime.now(_UTC) - each.since).total_seconds()
        cost = "" if each.cost is None else f"${each.cost:,.2f}"
        table.add_row(
            each.name, state_of(each, named=False), format_duration(since),
            counted(each.workers), str(each.restarts), places(each.workers), cost, each.person,
        )  # fmt: skip
    Console(highlight=False).print(table)
    return 0


def why(name: str, group: str | None, *, as_json: bool) -> int:
    """One answer: why a run waits, or why it failed, or failed before."""
    cluster = Cluster()
    run = runs.find(cluster, cluster.namespace(group), name)
    out = Console(highlight=False, soft_wrap=True)
    failed = first(runs.first_failed(run)) or _failed_before(cluster, run)
    waits = wait(cluster, run) if run.state in WAITS else None
    if as_json:
        waiting = None if waits is None else jsonable(waits.plain())
        print(json.dumps({**plain(run), "first_failure": failed, "waiting": waiting}))
        return 0
    out.print(state_of(run))
    if run.waits_for:
        out.print(Text(f"  {run.waits_for}"))
    for line in waits.lines() if waits is not None else ():
        out.print(Text(f"  {line}"))
    if failed is not None:
        if run.state != "failed":
            out.print(f"  it was started again {run.restarts} times; the last failure:")
        show_failure(out, failed)
    elif run.reason:
        out.print(Text(f"  {run.reason}"))
    return 0


def _failed_before(cluster: Cluster, run: Run) -> dict[str, Any] | None:
    """The first failure of the last start that had one, where its pods are gone."""
    from causeway.cluster import leavings
    from causeway.cluster.store import Store

    if not run.restarts and run.state != "failed":
        return None
    store = Store(cluster, run.namespace)
    for attempt in reversed(leavings.attempts(store, run.name)):
        if found := leavings.first_failure(store, attempt):
            return {**found, "attempt": attempt.number}
    return None


def stop(names: Sequence[str], group: str | None, *, as_json: bool) -> int:
    """Take runs out of their queue; they keep their record."""
    return _activate(names, group, active=False, as_json=as_json)


def resume(names: Sequence[str], group: str | None, *, as_json: bool) -> int:
    """Put stopped runs back into their queue."""
    return _activate(names, group, active=True, as_json=as_json)


def _activate(names: Sequence[str], group: str | None, *, active: bool, as_json: bool) -> int:
    """All that can be are; the others are said together. CausewayError."""
    cluster, out = Cluster(), Console(highlight=False)
    namespace = cluster.namespace(group)
    changed, problems = {}, []
    for name in names:
        try:
            run = runs.find(cluster, namespace, name, placed=False)
            changed[name] = runs.activate(cluster, run, active=active)
        except UnreachableError:
            raise
        except CausewayError as problem:
            problems.append(str(problem))
            continue
        if not as_json:
            word = "is queued again" if active else "is stopped"
            out.print(f"{name} {word}" if changed[name] else f"{name} {word} already")
    if as_json:
        print(json.dumps([{"run": name, "changed": each} for name, each in changed.items()]))
    if problems:
        raise CausewayError("\n".join(problems))
    return 0
