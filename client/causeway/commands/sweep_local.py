"""``sweep --local`` and ``sweep --on``: searches conducted and recorded by this machine."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway import sweep_files
from causeway.commands.machines import secrets_of, show_notes
from causeway.commands.packing import pack, write
from causeway.commands.run import show_plan
from causeway.commands.sweep_results import Found, described
from causeway.commands.sweep_show import show
from causeway.errors import CausewayError, DetachedError, InputError, Problem
from causeway.jobfile import LoadedJob, check_shared_code
from causeway.local_sweep import LocalBench
from causeway.machines import records, runs
from causeway.machines.placement import emptied, place
from causeway.machines.runs import Machines
from causeway.machines.sweeps import MachinesBench
from causeway.search.studies import needed
from causeway.sweep_files import PID, FileBench, conducting, find_search, new_search, search_record
from causeway.sweeping import pause, step
from causeway.workers import workers_of

_PAUSE = 0.2


def sweep_local(loaded: LoadedJob, on: Sequence[str], *, allow_secrets: bool, as_json: bool) -> int:
    """Search on this machine, or on those of ``on``, until the search is over; return the exit code."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    job, workers = loaded.job, workers_of(loaded.job)
    needed("the search", "optuna")  # before anything is recorded
    secret = secrets_of(loaded) if on else {}
    if not on:
        check_shared_code(loaded)
    taken: set[str] = set()
    packed = pack(loaded, allow_secrets=allow_secrets)
    with tempfile.TemporaryFile() as archive:
        size = write(packed, archive)
        if on:
            machines = Machines(on, workers, job, size)
            check_shared_code(loaded, contained=bool(machines.image(job)))
            # Wait for GPUs that are in use now.
            runs.check_job(job, machines, place(workers, emptied(machines.checked)))
            taken = {records.search_of(name) for name in machines.taken}
        stem = f"{job.name}-{records.NAMED}" if on else job.name
        folder = new_search(job, archive, packed.digest, stem, on, taken)
    where = ", ".join(on) if on else f"this machine, in {folder}"
    out.print(Text.assemble((folder.name, "bold"), f" on {where}"))
    show_plan(out, loaded, workers, packed)
    if on:
        show_notes(out, job, machines)
    for line in described(job):
        out.print(Text(line))
    return _conduct(out, folder, secret, as_json=as_json)


def _bench(folder: Path, say: Callable[[str], None] = lambda _: None) -> FileBench:
    return (MachinesBench if search_record(folder)["on"] else LocalBench)(folder, say)


def _conduct(out: Console, folder: Path, secret: Mapping[str, str], *, as_json: bool) -> int:
    """``secret``: environment variables of trials on machines; they are not recorded here."""
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)

    bench = _bench(folder, lambda text: out.print(Text(text)))
    if isinstance(bench, MachinesBench):
        bench.secret = secret
    every = pause(os.environ, bench.every)
    with conducting(folder):
        (folder / PID).write_text(str(os.getpid()), encoding="ascii")
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while not asked and step(bench, lambda text: out.print(Text(text))):
                until = time.monotonic() + every
                while not asked and time.monotonic() < until:
                    time.sleep(_PAUSE)
            if asked and search_record(folder)["state"] == "running":
                if signal.SIGTERM not in asked and isinstance(bench, MachinesBench):
                    raise DetachedError(
                        f"trials of {folder.name} continue; none is started or stopped early before "
                        f"causeway sweep resume {folder.name}. causeway sweep stop {folder.name} stops them"
                    )
                sweep_files.change(folder, state="stopped", reason="stopped by a user")
            if search_record(folder)["state"] == "stopped":
                bench.stop_all()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    record = search_record(folder)
    found = _found(folder)
    best = found.best
    out.print(Text.assemble((f"{folder.name} {record['state']}", "bold"), f": {record['reason']}"))
    for note in found.summary.get("notes", ()):
        out.print(Text(f"  note     {note}"))
    if best is not None:
        out.print(f"  best     {found.run(best)}; {_command(folder, 'show')}")
        if found.repeats:
            out.print(f"  again    {found.repeats}")
    if record["state"] == "stopped":
        out.print(f"  {_command(folder, 'resume')} continues it")
    if as_json:
        print(json.dumps(found.plain()))
    return {"done": 0, "stopped": 130}.get(record["state"], 1)


def _command(folder: Path, verb: str) -> str:
    """Return the command that the user would type."""
    local = "" if search_record(folder)["on"] else "--local "
    return f"causeway sweep {verb} {local}{folder.name}"


def _found(folder: Path) -> Found:
    record = search_record(folder)
    bench = _bench(folder)
    bench.load()
    engine, trials = bench.engine(), bench.trials()
    state = record["state"]
    if state == "running" and not sweep_files.is_conducted(folder):
        goes_on = "; its trials continue, and none is started or stopped early" if record["on"] else ""
        reason = f"its process ended{goes_on}: {_command(folder, 'resume')}"
        state, record["reason"] = "stopped", reason
    where = ", ".join(record["on"]) or f"this machine, {folder}"
    return Found(
        folder.name, where, os.environ.get("USER", ""), state, record["reason"],
        record["started"], engine, trials, record.get("summary") or {},
        "" if record["on"] else "causeway rerun --local",
    )  # fmt: skip


def show_local(name: str | None, *, everything: bool, watch: bool, page: str | None, as_json: bool) -> int:
    """Show a search recorded here, or list all."""
    if name is None:
        return list_local(as_json=as_json)
    folder = find_search(name)
    return show(lambda: _found(folder), everything=everything, watch=watch, page=page, as_json=as_json)


def list_local(*, as_json: bool) -> int:
    """List all searches recorded here."""
    found = [_found(folder) for folder in sweep_files.searches_here()]
    if as_json:
        print(json.dumps([{"sweep": each.name, "state": each.state} for each in found]))
    for each in () if as_json else found:
        print(f"{each.name}  {each.state}  {len(each.trials)} of {each.sweep.trials} trials")
    return 0


def stop_local(name: str, *, as_json: bool) -> int:
    """Stop a search recorded here, and its trials."""
    folder = find_search(name)
    changed = search_record(folder)["state"] == "running"
    if changed and (process := sweep_files.conductor_of(folder)):
        os.kill(process, signal.SIGTERM)
        while sweep_files.is_conducted(folder):
            time.sleep(0.2)
    elif changed:
        bench = _bench(folder)
        bench.load()
        sweep_files.change(folder, state="stopped", reason="stopped by a user")
        bench.stop_all()
    if as_json:
        print(json.dumps({"sweep": name, "changed": changed}))
    else:
        print(f"{name} is stopped" if changed else f"{name} is {search_record(folder)['state']} already")
    return 0


def resume_local(name: str, trials: int | None, *, as_json: bool) -> int:
    """Resume a search recorded here. ``trials``: its new number of trials."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    folder = find_search(name)
    if sweep_files.is_conducted(folder):
        raise CausewayError(f"{name} is running already")
    bench = _bench(folder)
    limit = bench.engine().sweep.trials
    if trials is not None and trials <= limit:
        raise InputError([Problem("--trials", "", f"{trials}: {name} already allows {limit}")])
    if trials is None and search_record(folder)["state"] == "done":
        raise CausewayError(f"{name} is done; {_command(folder, 'extend')} --trials {2 * limit}")
    secret = secrets_of(LoadedJob(bench.job, folder)) if search_record(folder)["on"] else {}
    changes: dict[str, Any] = {"trials": trials} if trials else {}
    if search_record(folder)["state"] == "failed":
        changes["since"] = max((each.number for each in _found(folder).trials), default=0)
    sweep_files.change(folder, state="running", reason="", **changes)
    return _conduct(out, folder, secret, as_json=as_json)
