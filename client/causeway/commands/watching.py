"""``ps``, ``why``, ``stop``, ``resume`` for runs of the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from causeway.cluster import runs
from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run, Trials, places
from causeway.cluster.saved import Saved, last_saved
from causeway.cluster.started import recalled, remember
from causeway.commands.describing import code_of, counted, first, gone, jsonable, plain, state_of
from causeway.commands.failure import show_failure
from causeway.commands.tables import table
from causeway.errors import CausewayError, UnreachableError
from causeway.units import format_duration

_UTC = timezone.utc
_EVERY = 2.0
"""Seconds between two updates of ``ps --watch``."""
_SAVED_EVERY = 15.0
"""Seconds between two checks for checkpoints."""
_LEAST = 0.01
"""Transfers that cost less, in USD, are not shown."""


def ps(group: str | None, search: str | None = None, *, watch: bool, as_json: bool) -> int:
    """List the runs of a namespace, and its searches, one line each. With ``search``, list its trials.
    ``watch``: repeat until Ctrl-C."""
    cluster = Cluster()
    namespace = cluster.namespace(group)
    found, counted_ = _listed(cluster, namespace, search)
    saved = last_saved(cluster, found)
    if as_json:
        trials = [
            {"sweep": each.name, "namespace": namespace, "trials": dict(each.counts)} for each in counted_
        ]
        listed = [
            {**plain(each), "saved": saved[each.name].plain() if each.name in saved else None}
            for each in found
        ]
        print(json.dumps([*listed, *trials]))
    out = Console(highlight=False)
    if not watch:
        if not as_json:
            out.print(_table(out, found, counted_, saved), soft_wrap=True)
        remember(cluster, found)
        return 0
    try:
        asked, rows = time.monotonic(), out.height - 2
        with Live(_table(out, found, counted_, saved, rows), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(_EVERY)
                found, counted_ = _listed(cluster, namespace, search)
                if time.monotonic() - asked >= _SAVED_EVERY:
                    saved, asked = last_saved(cluster, found), time.monotonic()
                live.update(_table(out, found, counted_, saved, rows), refresh=True)
    except KeyboardInterrupt:
        return 0


def _listed(cluster: Cluster, namespace: str, search: str | None) -> tuple[list[Run], list[Trials]]:
    """Return the trials of a search, or all other runs together with a summary of trials."""
    if search:
        return recalled(cluster, runs.runs(cluster, namespace, sweep=search)), []
    with ThreadPoolExecutor(1) as beside:  # both mostly wait for the API
        counts = beside.submit(runs.trials, cluster, namespace)
        return recalled(cluster, runs.runs(cluster, namespace)), counts.result()


def _table(
    out: Console,
    found: Sequence[Run],
    searches: Sequence[Trials],
    saved: Mapping[str, Saved],
    height: int | None = None,
) -> RenderableType:
    """``saved``: run → its last checkpoint. ``height``: maximum number of rows of runs and searches."""
    now = datetime.now(_UTC)
    rows: list[tuple[str | Text, ...]] = []
    for search in searches:
        listed = ", ".join(f"{count} {state}" for state, count in search.counts.items())
        rows.append((search.name, "search", "", listed, "", "", "", "", search.person))
    rows += [
        (
            each.name, state_of(each, named=False), format_duration((now - each.since).total_seconds()),
            counted(each.workers), str(each.restarts), _saved(saved.get(each.name), each, now),
            places(each.workers),
            "" if each.cost is None else f"${each.cost:,.2f}", each.person,
        )
        for each in found
    ]  # fmt: skip
    titles = ("RUN", "STATE", "FOR", "WORKERS", "RESTARTS", "SAVED", "ON", "COST", "BY")
    return table(out, titles, rows[:height])


def _saved(saved: Saved | None, run: Run, now: datetime) -> str:
    """Format a checkpoint: ``step-1200, 4m``; empty for a run that is done."""
    if saved is None or run.state == "done":
        return ""
    return f"{saved.name}, {format_duration(max(now.timestamp() - saved.at, 0))}"


def why(name: str, group: str | None, *, as_json: bool) -> int:
    """Print one answer: why a run is waiting, or why it failed, now or earlier."""
    from causeway.cluster.copying import copying
    from causeway.commands.sweep import name_of_search, why_search
    from causeway.commands.waiting import WAITS, wait

    cluster = Cluster()
    if name_of_search(name) and cluster.find(f"{runs.path_of(cluster.namespace(group))}/{name}") is None:
        return why_search(cluster, name, group, as_json=as_json)
    run = recalled(cluster, [runs.find(cluster, cluster.namespace(group), name)])[0]
    out = Console(highlight=False, soft_wrap=True)
    failed = first(runs.first_failed(run)) or _failed_before(cluster, run)
    waits = wait(cluster, run) if run.state in WAITS else None
    copied = copying(cluster, run)
    if as_json:
        waiting = None if waits is None else jsonable(waits.plain())
        saved = None if copied.saved is None else copied.saved.plain()
        known = {"first_failure": failed, "waiting": waiting, "saved": saved, "not_copied": copied.problem}
        print(json.dumps({**plain(run), **known, "moving_usd": dict(copied.moving)}))
        return 0
    out.print(state_of(run))
    if run.waits_for:
        out.print(Text(f"  {run.waits_for}"))
    for line in waits.lines() if waits is not None else ():
        out.print(Text(f"  {line}"))
    if failed is not None:
        if run.state != "failed":
            times = "once" if run.restarts == 1 else f"{run.restarts} times"
            out.print(f"  it was restarted {times}; the last failure:")
        show_failure(out, failed, code_of(run))
    elif run.reason and not run.waits_for:
        out.print(Text(f"  {run.reason}"))
    if copied.saved is not None and run.state != "done":
        age = format_duration(time.time() - copied.saved.written)
        out.print(Text(f"  its last checkpoint is {copied.saved.name}, {age} old"))
    for line in _moving(copied.moving):
        out.print(Text(f"  {line}"))
    if copied.problem:
        out.print(Text(f"  some output is not in the store: {copied.problem}", style="yellow"))
    return 0


def _moving(moving: Mapping[str, float]) -> Iterator[str]:
    """Format the costs of moving: ``AWS charges $0.12 for its checkpoint if it goes on in rack-a``; amounts
    below a cent are left out."""
    by_price: dict[str, list[str]] = {}
    for site, usd in moving.items():
        if usd >= _LEAST:
            by_price.setdefault(f"{usd:,.2f}", []).append(site)
    for price, sites in by_price.items():
        yield f"AWS charges ${price} for its checkpoint if it resumes in {' or '.join(sites)}"


def _failed_before(cluster: Cluster, run: Run) -> dict[str, Any] | None:
    """Return the first failure of the latest start that had one, if its pods are gone."""
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
    """Take runs out of their queue; they keep their records."""
    return _activate(names, group, active=False, as_json=as_json)


def resume(names: Sequence[str], group: str | None, seconds: int | None, *, as_json: bool, yes: bool) -> int:
    """Put stopped runs back into their queue. For a run that has ended, submit a new one that continues it,
    for at most ``seconds``."""
    return _activate(names, group, seconds, active=True, as_json=as_json, yes=yes)


def _activate(
    names: Sequence[str],
    group: str | None,
    seconds: int | None = None,
    *,
    active: bool,
    as_json: bool,
    yes: bool = False,
) -> int:
    """Change all runs that can be changed. Raises one CausewayError for the others."""
    from causeway.commands import submit

    cluster, out = Cluster(), Console(highlight=False)
    namespace = cluster.namespace(group)
    changed, problems = {}, []
    successors: dict[str, str] = {}
    for name in names:
        try:
            run = runs.find(cluster, namespace, name, placed=False)
            if active:
                _check_it_can_go_on(cluster, run, seconds)
            if active and run.state in runs.OVER:
                successors[name] = submit.go_on(cluster, run, seconds, yes=yes)
                changed[name] = True
            else:
                changed[name] = runs.activate(cluster, run, active=active)
        except UnreachableError:
            raise
        except CausewayError as problem:
            problems.append(str(problem))
            continue
        if name in successors and not as_json:
            out.print(f"{name} {run.state}; {successors[name]} resumes from its checkpoints")
        elif not as_json:
            word = "is queued again" if active else "is stopped"
            out.print(f"{name} {word}" if changed[name] else f"{name} {word} already")
    if as_json:
        said = [{"run": name, "changed": each} for name, each in changed.items()]
        print(json.dumps([{**each, "continues_as": successors.get(str(each["run"]))} for each in said]))
    if problems:
        raise CausewayError("\n".join(problems))
    return 0


def _check_it_can_go_on(cluster: Cluster, run: Run, seconds: int | None) -> None:
    """Raise CausewayError for a run that is done, whose code has expired, or whose time limit cannot
    change."""
    from causeway.cluster.store import Store

    if seconds is not None and run.state not in runs.OVER:
        # Kueue copied the time limit when the run was submitted.
        raise CausewayError(f"{run.name} is {run.state}; --time is for runs that timed out or failed")
    if run.state == "done":
        raise CausewayError(f"{run.name} is done; causeway rerun {run.name} starts it from the beginning")
    if run.code and not Store(cluster, run.namespace).keep_code(run.code):
        raise CausewayError(gone(run.name))
