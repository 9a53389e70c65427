"""``ps``, ``why``, ``logs``, ``get``, ``stop`` for runs of this machine, started by ``run --local``."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.commands.describing import check_worker, coloured, counted_files
from causeway.commands.failure import show_failure
from causeway.commands.run import printer
from causeway.commands.tables import show_table
from causeway.errors import CausewayError, DetachedError, InputError, Problem
from causeway.holding import ask_to_end
from causeway.job import Job
from causeway.local import find_here, first_failed, is_running, record_of, runs_here, state_here
from causeway.places import Place
from causeway.sweep_files import sweeps_root
from causeway.units import format_duration, format_size
from causeway.workers import workers_of

_PAUSE = 0.5
_LATER = 15.0
"""Seconds to wait for the end of a run after its grace period."""
_TRIAL = re.compile(r"(.+-s\d+)-\d+")


def plain(folder: Path) -> dict[str, Any]:
    """Return a run as a JSON object of a list."""
    record = record_of(folder)
    ended = record.get("ended", {})
    return {
        "name": folder.name,
        "state": state_here(folder, record),
        "created": record["started"],
        "since": ended.get("at", record["started"]),
        "seconds": ended.get("seconds", 0.0),
        "code": record["code"],
        "parameters": record.get("parameters", {}),
        "job": record["job"],
        "folder": str(folder),
    }


def ps(search: str | None = None, *, watch: bool = False) -> int:
    """List the runs of this machine, the newest first, and its searches, one line each. With ``search``, list
    its trials. ``watch``: repeat until Ctrl-C."""
    from rich.live import Live

    from causeway.commands.tables import table

    out = Console(highlight=False)
    titles = ("RUN", "STATE", "FOR", "COMMAND")
    if not watch:
        show_table(out, titles, _rows(search))
        return 0
    try:
        with Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(table(out, titles, _rows(search)[: out.height - 2]), refresh=True)
                time.sleep(_PAUSE)
    except KeyboardInterrupt:
        return 0


def listed(search: str | None = None) -> list[dict[str, Any]]:
    """Return runs as JSON objects: those that are not trials, or those of a search."""
    return [plain(each) for each in runs_here() if search_of(each.name) == (search or "")]


def _rows(search: str | None) -> list[tuple[str | Text, ...]]:
    now = time.time()
    rows: list[tuple[str | Text, ...]] = []
    searches: dict[str, list[str]] = {}
    for folder in runs_here():
        of = search_of(folder.name)
        each = plain(folder)
        if of and not search:
            searches.setdefault(of, []).append(each["state"])
        elif of == (search or ""):
            command = " ".join(str(each["job"].get("run", "")).split())
            age = format_duration(now - each["since"])
            rows.append((folder.name, coloured(each["state"], each["state"]), age, command))
    for name, states in searches.items():
        counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        rows.insert(0, (name, "search", "", counted))
    return rows


def search_of(run: str) -> str:
    """Return the local search that a run is a trial of; empty if it is not a trial."""
    found = _TRIAL.fullmatch(run)
    return found[1] if found and (sweeps_root() / found[1]).is_dir() else ""


def why(name: str, *, as_json: bool) -> int:
    """Print the state of a run, and which of its workers failed first."""
    folder, job = find_here(name)
    found, first = plain(folder), first_failed(folder)
    if as_json:
        print(json.dumps({**found, "first_failure": first, "waiting": None}))
        return 0
    out = Console(highlight=False, soft_wrap=True)
    _show_state(out, found, first, job)
    return 0


def _show_state(out: Console, found: Mapping[str, Any], first: Mapping[str, Any] | None, job: Job) -> None:
    out.print(coloured(f"{found['name']} {found['state']}", found["state"]))
    if found["state"] == "timed-out":
        took = format_duration(job.time)
        more = f"causeway resume --local {found['name']} --time 8h allows more"
        out.print(f"  it ran for all of its `time`, {took}; {more}")
    if first is not None and found["state"] in ("failed", "stopped"):
        show_failure(out, first, job.code, here=True)
    folder = Path(found["folder"])
    if reason := record_of(folder).get("ended", {}).get("reason"):
        out.print(Text(f"  {reason}"))
    places = [Place(folder, each.role, rank) for each in workers_of(job) for rank in range(each.count)]
    saved = any(place.is_kept for place in places)
    state = found["state"]
    if not search_of(found["name"]) and (state == "stopped" or (state == "failed" and saved)):
        begins = "resumes from its last checkpoint" if saved else "begins anew: it has no checkpoint"
        out.print(f"  causeway resume --local {found['name']} {begins}")


def logs(name: str, *, follows: bool, worker: str | None, as_json: bool) -> int:
    """Print the output of all workers, or of ``worker``, over all starts. ``follows``: until the run ends."""
    folder, job = find_here(name)
    names = [f"{each.role}-{rank}" for each in workers_of(job) for rank in range(each.count)]
    check_worker(worker, names)
    wanted = [worker] if worker else names
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    shown = printer(out, wanted)

    def show(who: str, line: str) -> None:
        if as_json:
            print(json.dumps({"at": None, "worker": who, "line": line}, ensure_ascii=False), flush=True)
        else:
            shown(who, line)

    logs_of = {who: folder / "workers" / f"{who}.log" for who in wanted}
    if not follows:
        for who, path in logs_of.items():
            for line in _Tail(path).lines(last=True):
                show(who, line)
        return 0
    tails = {who: _Tail(path) for who, path in logs_of.items()}
    try:
        while True:
            over = not is_running(folder)
            for who, tail in tails.items():
                for line in tail.lines(last=over):
                    show(who, line)
            if over:
                break
            time.sleep(_PAUSE)
    except KeyboardInterrupt:
        raise DetachedError(
            f"{name} continues: causeway logs -f --local {name}; causeway stop --local {name}"
        ) from None
    found, first = plain(folder), first_failed(folder)
    _show_state(out, found, first, job)
    if as_json:
        print(json.dumps({**found, "first_failure": first}))
    return 0 if found["state"] == "done" else 1


class _Tail:
    """A file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""

    def lines(self, *, last: bool) -> Iterator[str]:
        """Yield new lines; with ``last``, also a line without a newline."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if last and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        yield from (line.decode("utf-8", "replace") for line in lines)


def stop(names: Sequence[str], *, as_json: bool) -> int:
    """Stop runs and wait until they have ended: SIGTERM, their grace period, SIGKILL."""
    out = Console(highlight=False)
    changed, problems = {}, []
    for name in names:
        try:
            folder, job = find_here(name)
            changed[name] = _stop(folder, job.grace)
        except CausewayError as problem:
            problems.append(str(problem))
            continue
        if not as_json:
            out.print(f"{name} is stopped" if changed[name] else f"{name} is not running")
    if as_json:
        print(json.dumps([{"run": name, "changed": each} for name, each in changed.items()]))
    if problems:
        raise CausewayError("\n".join(problems))
    return 0


def _stop(folder: Path, grace: int) -> bool:
    if not is_running(folder):
        return False
    if not ask_to_end(folder):
        raise CausewayError(
            f"{folder.name} is locked by an unknown process: it was started by an older version"
        )
    until = time.monotonic() + grace + _LATER
    killed = False
    while is_running(folder):
        if time.monotonic() > until:
            if killed:
                raise CausewayError(f"{folder.name} did not end when asked to")
            # A second signal would kill it.
            killed, until = ask_to_end(folder), time.monotonic() + _LATER
        time.sleep(0.1)
    return True


def get(name: str, path: str, target: str, *, as_json: bool) -> int:
    """Copy results, all of them or those at ``path``, into a folder. Files that were copied before and have
    not changed are skipped."""
    folder, _ = find_here(name)
    root = folder / "results"
    chosen = root / path
    if root.resolve() not in (chosen.resolve(), *chosen.resolve().parents):
        raise InputError([Problem("causeway get", "", f"{path} is outside of the run's results")])
    found = [chosen] if chosen.is_file() else [each for each in sorted(chosen.rglob("*")) if each.is_file()]
    if not found:
        below = f" at {path}" if path else ""
        raise CausewayError(
            f"{name} has left no results{below}; a program writes them below $CAUSEWAY_RESULTS"
        )
    to = Path(target or name)
    fetched = sum(_copied(each, to / each.relative_to(root)) for each in found)
    size = sum(each.stat().st_size for each in found)
    if as_json:
        counts = {"files": len(found), "fetched": fetched, "bytes": size}
        print(json.dumps({"run": name, "folder": str(to), **counts}))
        return 0
    said = f"{counted_files(len(found))}, {format_size(size)}, in {to}"
    Console(highlight=False, soft_wrap=True).print(said)
    return 0


def _copied(source: Path, there: Path) -> bool:
    about = source.stat()
    if there.is_file() and there.stat().st_size == about.st_size and there.stat().st_mtime >= about.st_mtime:
        return False
    there.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, there)
    return True
