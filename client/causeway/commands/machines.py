"""``run --on``, and ``ps``, ``why``, ``logs``, ``stop``, ``resume``, ``get`` for runs on machines without a
cluster."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.commands.describing import check_worker
from causeway.commands.failure import show_failure
from causeway.commands.packing import pack, write
from causeway.commands.run import printer, show_plan
from causeway.commands.tables import show_table
from causeway.errors import CausewayError, DetachedError, InputError, Problem, UnreachableError
from causeway.job import Job, seeded, written
from causeway.jobfile import LoadedJob, check_shared_code
from causeway.machines import records, runs
from causeway.machines.runs import Given, Machines
from causeway.machines.ssh import Host, tried
from causeway.machines.state import ENDED, Run
from causeway.units import format_duration
from causeway.workers import workers_of

_STYLES = {
    "done": "green", "running": "cyan", "stopped": "yellow", "starting": "yellow", "waiting": "yellow",
    "unknown": "yellow",
}  # fmt: skip
_CLUSTERS = ("group", "where", "mounts", "cpus", "memory", "shm", "ports", "restarts")
"""Fields that only a cluster uses."""


def run_on(
    loaded: LoadedJob, *, allow_secrets: bool, detach: bool, dry_run: bool, waits: bool, as_json: bool
) -> int:
    """Run a job on its machines; return the exit code."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    loaded.one_task()
    name, placed = start(out, loaded, allow_secrets=allow_secrets, dry_run=dry_run, waits=waits)
    if dry_run or detach:
        if as_json:
            print(json.dumps({**({} if dry_run else {"run": name}), "placed": placed}))
        return 0
    return _follow(out, name, as_json=as_json)


def start(
    out: Console, loaded: LoadedJob, *, allow_secrets: bool, dry_run: bool = False, waits: bool = False
) -> tuple[str, Mapping[str, str]]:
    """Start a run. Returns its name, worker → machine, and whether it waits. With ``dry_run`` nothing is
    started, and the name is empty. ``waits``: wait for GPUs that are taken; otherwise that is an error."""
    job = seeded(loaded.job)
    workers = workers_of(job)
    secret = secrets_of(loaded)
    packed = pack(loaded, allow_secrets=allow_secrets)
    with tempfile.TemporaryFile() as archive:
        size = write(packed, archive)
        machines = Machines(job.on, workers, job, size, packed.digest)
        check_shared_code(loaded, contained=bool(machines.image(job)))
        placed = runs.placed_for(workers, machines, waits=waits)
        runs.check_job(job, machines, placed)
        out.print(Text.assemble((job.name, "bold"), f" on {', '.join(dict.fromkeys(placed.values()))}"))
        show_plan(out, loaded, workers, packed)
        show_notes(out, job, machines)
        if dry_run:
            return "", placed
        given = Given(secret, loaded.parameters)
        name, still = runs.start(job, machines, placed, archive, packed.digest, size, given, waits=waits)
    _show_started(out, name, still)
    return name, placed


def _show_started(out: Console, name: str, still: bool) -> None:
    """``still``: it is waiting for GPUs."""
    if not still:
        out.print(f"{name} started")
    elif (run := runs.find(name, ())).state == "waiting":
        out.print(Text(f"{name} {run.reason}"))


def rerun(name: str, on: Sequence[str], *, exact: bool, detach: bool, as_json: bool) -> int:
    """Run a run again from its beginning, on the machines that it was given; return the exit code.

    ``exact``: use the same packages as well, and list what cannot be the same.
    """
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    before = runs.find(name, on)
    job, given, differs = runs.job_of(before)[0], Given.of(before.record), []
    if exact:
        from causeway.commands.repeating import repeated_here, show_differences
        from causeway.overview import OfMachines

        known = OfMachines(before).known()
        given, differs = replace(given, exactly=known.packages), repeated_here(known)
        show_differences(out, name, differs)
    # Secrets are read from this shell, as they are now.
    now = {each: os.environ[each] for each in job.secrets.values() if each in os.environ}
    new, still = runs.again(before, seeded(job), replace(given, secret={**given.secret, **now}))
    _show_started(out, new, still)
    if not detach:
        return _follow(out, new, as_json=as_json)
    if as_json:
        print(json.dumps({"run": new, "code": before.record["code"], "differs": differs}))
    return 0


def secrets_of(loaded: LoadedJob) -> dict[str, str]:
    """Take the values that a cluster would take from Secrets from this shell. Raises InputError for missing
    ones."""
    lacking = [name for name in loaded.job.secrets.values() if name not in os.environ]
    if lacking:
        hint = "without a cluster, secrets come from this shell: export it"
        raise InputError(
            [loaded.placed(Problem("job", "secrets", f"{name} is not set", hint)) for name in lacking]
        )
    return {name: os.environ[name] for name in loaded.job.secrets.values()}


def show_notes(out: Console, job: Job, machines: Machines) -> None:
    """Print which fields of the job are ignored on machines."""
    given = [name for name in _CLUSTERS if name in job.model_fields_set]
    given += ["checkpoints.volume"] if job.checkpoints.volume else []
    given += [f"gpus.{name}" for name in ("class", "interconnect") if name in written(job).get("gpus", {})]
    if given:
        out.print(f"           ignored without a cluster: {', '.join(given)}", style="yellow")
    if job.image and not machines.image(job):
        out.print(f"           podman not found: {job.image} is ignored, the machines' software is used",
                  style="yellow")  # fmt: skip


def ps(
    on: Sequence[str],
    search: str | None = None,
    *,
    as_json: bool,
    more: Sequence[Mapping[str, Any]] = (),
) -> int:
    """List runs of machines, by default those started from this laptop; a search is one line. Raises
    UnreachableError if one of ``on`` does not answer; other machines that do not answer are only listed.

    ``search``: list its trials. ``more``: further runs to list, as JSON objects.
    """
    known = {name: records.hosts_of(name) or [] for name in records.names()}
    found, errors = runs.listed(on or list(dict.fromkeys(host for hosts in known.values() for host in hosts)))
    if not on:
        for name in known.keys() - {each.name for each in found}:
            if not errors.keys() & {*known[name]}:
                records.forget(name)  # it was removed on the machine
        found = [each for each in found if each.name in known]
    if search is not None:
        found = [each for each in found if records.search_of(each.name) == search]
    if as_json:
        print(json.dumps([*(_plain(each) for each in found), *more]))
    elif found:
        titles = ("RUN", "STATE", "FOR", "WORKERS", "ON", "GPUS", "BY")
        show_table(Console(highlight=False), titles, [*_rows(found, together=search is None)])
    if errors and on:
        raise UnreachableError("\n".join(map(str, errors.values())))
    for error in errors.values():
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(str(error), style="yellow"))
    return 0


def _rows(found: Sequence[Run], *, together: bool) -> Iterator[tuple[str | Text, ...]]:
    """``together``: summarise all trials of a search in one line."""
    searches: dict[str, list[Run]] = {}
    for each in found:
        searches.setdefault((together and records.search_of(each.name)) or each.name, []).append(each)
    for name, trials in searches.items():
        each = trials[0]
        state, since = _state(each), each.since
        if each.state == "waiting":
            state = Text(each.reason.partition(" in its queue")[0], style=_STYLES["waiting"])
        counted, gpus = _counted(each), _gpus(each)
        if name != each.name:
            state, since = Text("search"), min(trial.record["created"] for trial in trials)
            counted = _numbers([trial.state for trial in trials])
            gpus = sum(_gpus(trial) for trial in trials if trial.state == "running")
        hosts = dict.fromkeys(host for trial in trials for host in trial.hosts)
        age = format_duration(max(time.time() - since, 0))
        yield name, state, age, counted, ", ".join(hosts), str(gpus), each.record["by"]


def _gpus(run: Run) -> int:
    return sum(worker["gpus"]["count"] for worker in run.record["workers"].values())


def why(name: str, on: Sequence[str], *, as_json: bool) -> int:
    """Print what a run is doing, or why it ended as it did."""
    run = runs.find(name, on)
    out = Console(highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(_plain(run)))
        return 0
    _show(out, run)
    for worker in run.workers:
        gpus = f", GPUs {', '.join(map(str, worker.gpus))}" if worker.gpus else ""
        said = f": {worker.reason}" if worker.reason and worker.reason not in run.reason else ""
        out.print(Text(f"  {worker.name} on {worker.host}{gpus}: {worker.state}{said}"))
    return 0


def logs(
    name: str, on: Sequence[str], *, follows: bool, worker: str | None, start: int | None, as_json: bool
) -> int:
    """Print the output of all workers, or of one, ordered by time. ``start``: only this start, counted from
    0."""
    run = runs.find(name, on)
    check_worker(worker, [each.name for each in run.workers])
    out = Console(highlight=False, soft_wrap=True)
    if follows and start in (None, run.record["start"] - 1):
        return _follow(out, name, on, worker=worker, as_json=as_json)
    if start is not None and start >= run.record["start"]:
        raise CausewayError(f"{name} has no attempt {start}; its last is {run.record['start'] - 1}")
    answers, faults = tried([*map(Host, run.hosts)], lambda host: _lines(host, run, worker, start))
    lines = [line for found in answers.values() for line in found]
    show = printer(out, sorted({who for _, who, _ in lines}))
    for at, who, line in sorted(lines, key=lambda each: each[0]):
        if as_json:
            print(json.dumps({"at": at, "worker": who, "line": line}, ensure_ascii=False))
        else:
            show(who, line)
    if faults:
        raise UnreachableError("\n".join(map(str, faults.values())))
    return 0


def stop(names: Sequence[str], on: Sequence[str], *, as_json: bool) -> int:
    """Stop runs: SIGTERM, the job's grace period, SIGKILL."""
    found = [runs.find(name, on) for name in names]
    changed = {run.name: runs.stop(run) for run in found}
    out = Console(highlight=False, soft_wrap=True)
    for run in found if not as_json else ():
        said = "is asked to stop" if changed[run.name] else f"is not running: {run.state}"
        out.print(f"{run.name} {said}")
    if as_json:
        print(json.dumps([{"run": name, "changed": each} for name, each in changed.items()]))
    return 0


def resume(names: Sequence[str], on: Sequence[str], seconds: int | None, *, as_json: bool) -> int:
    """Resume runs on the machines that they had. ``seconds``: their maximum run time."""
    out = Console(highlight=False, soft_wrap=True)
    for name in names:
        run = runs.find(name, on)
        if run.state == "done":
            raise CausewayError(f"{name} is done")
        if run.state not in ENDED:
            raise CausewayError(f"{name} is {run.state}: {run.reason or _counted(run)}")
        if ending := [each for each in run.workers if each.state == "running"]:
            raise CausewayError(
                f"{name}: {ending[0].name} on {ending[0].host} is still ending; try again soon"
            )
        kept = runs.go_on(run, seconds, waits=True)
        how = "from its last checkpoint" if kept else "from the beginning: it has no complete checkpoint"
        if not as_json:
            out.print(f"{name} continues {how}: causeway logs -f {name}")
    if as_json:
        print(json.dumps([{"run": name, "changed": True} for name in names]))
    return 0


def get(name: str, on: Sequence[str], path: str, folder: str, *, as_json: bool) -> int:
    """Fetch results: those on the first worker's machine, and in folders named after them, those on other
    machines."""
    run = runs.find(name, on)
    root = Path(folder or name)
    for host in map(Host, runs.homes(run)):
        target = root if host.name == run.hosts[0] else root / host.name
        runs.unpacked(host, name, "results", [path] if path else [], target)
    if path and not any(root.rglob(Path(path).name)):
        raise CausewayError(f"{name} has no {path} in its results")
    if as_json:
        print(json.dumps({"run": name, "folder": str(root)}))
    else:
        Console(highlight=False, soft_wrap=True).print(f"results of {name} are in {root}")
    return 0


def _lines(host: Host, run: Run, worker: str | None, start: int | None) -> list[tuple[str, str, str]]:
    """Return (time, worker, text) of each line on a machine."""
    with _output(host, run, worker, start, follow=False) as process:
        assert process.stdout is not None
        return [_parted(line) for line in process.stdout]


def _output(host: Host, run: Run, worker: str | None, start: int | None, *, follow: bool) -> Any:
    wanted = [each.name for each in run.workers if each.host == host.name and worker in (None, each.name)]
    # Starts on machines are counted from 1.
    number = None if start is None else start + 1
    return host.asking("output", run=run.name, start=number, workers=wanted or ["none"], follow=follow)


def _parted(line: bytes) -> tuple[str, str, str]:
    worker, text = json.loads(line)
    at, _, said = text.partition(" ")
    return at, worker, said


def _follow(
    out: Console, name: str, on: Sequence[str] = (), *, worker: str | None = None, as_json: bool
) -> int:
    """Show a run until it ends; return the exit code. Raises DetachedError on Ctrl-C."""
    showing = Lock()
    try:
        run = runs.find(name, on)
        show = printer(out, [worker] if worker else [each.name for each in run.workers])
        broken: list[str] = []

        def copy(host: Host) -> None:
            try:
                with _output(host, run, worker, None, follow=True) as process:
                    for line in process.stdout:
                        _, who, text = _parted(line)
                        with showing:
                            show(who, text)
                    if process.wait():
                        broken.append(host.name)
            except UnreachableError:
                broken.append(host.name)

        # Plain threads, not a pool, whose threads Ctrl-C would wait for.
        threads = [Thread(target=copy, args=(host,), daemon=True) for host in map(Host, run.hosts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while (run := runs.find(name, on)).state in ("running", "starting", "waiting"):
            if broken and run.state == "running":
                raise UnreachableError(
                    f"the connection to {', '.join(broken)} broke; {name} continues: causeway logs -f {name}"
                )
            time.sleep(1)
    except KeyboardInterrupt:
        # Never released: Python aborts if a thread writes to stdout during shutdown.
        showing.acquire(timeout=1)
        raise DetachedError(
            f"{name} continues on its machines: causeway logs -f {name}; causeway stop {name}"
        ) from None
    if as_json:
        print(json.dumps(_plain(run)))
    else:
        _show(out, run)
    return 0 if run.state == "done" else 1


def _show(out: Console, run: Run) -> None:
    """Print the state of a run in a few lines."""
    by = f" by {run.stopped_by}" if run.state == "stopped" and run.stopped_by else ""
    out.print(Text.assemble(_state(run, named=True), f"{by} on {', '.join(run.hosts)}"))
    if run.first is not None:
        show_failure(out, run.first)
        if run.first.get("host") and len(run.hosts) > 1:
            out.print(f"  on {run.first['host']}")
    elif run.reason:
        out.print(Text(f"  {run.reason}"))
    if run.state in ENDED and run.state != "done":
        where = "its last checkpoint" if run.kept else "the beginning: it has no checkpoint"
        out.print(Text(f"  causeway resume {run.name} resumes from {where}"))


def _state(run: Run, *, named: bool = False) -> Text:
    return Text(f"{run.name} {run.state}" if named else run.state, style=_STYLES.get(run.state, "red"))


def _counted(run: Run) -> str:
    return _numbers([worker.state for worker in run.workers])


def _numbers(states: Sequence[str]) -> str:
    """Count states: ``3 running, 1 done``."""
    return ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states))


def _plain(run: Run) -> dict[str, Any]:
    values = asdict(run)
    record, first = values.pop("record"), values.pop("first")
    said = {name: record[name] for name in ("job", "started", "start")}
    said["parameters"] = record.get("parameters", {})
    return {**values, **said, "first_failure": first, "started_by": record["by"], "hosts": run.hosts}
