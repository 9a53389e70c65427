"""``causeway run --local``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.text import Text

from causeway import local_recording as recording
from causeway.commands.failure import show_failure
from causeway.commands.packing import Packed, pack, write
from causeway.job import Job, seeded, timed
from causeway.jobfile import LoadedJob, check_shared_code
from causeway.local import Ended, code_of, find_here, new_folder, record_of, run_here, submit_here
from causeway.units import format_duration
from causeway.workers import Workers, ends_with, workers_of

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def run_local(loaded: LoadedJob, *, allow_secrets: bool, as_json: bool) -> int:
    """Run a job on this machine; return the exit code."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    folder, job, workers = submitted_here(out, loaded, allow_secrets=allow_secrets)
    return _run(out, job, workers, folder, as_json=as_json)


def submitted_here(
    out: Console, loaded: LoadedJob, *, allow_secrets: bool
) -> tuple[Path, Job, Sequence[Workers]]:
    """Create a run of this machine without starting it."""
    loaded.one_task()
    check_shared_code(loaded)
    job = seeded(loaded.job)
    workers = workers_of(job)
    packed = pack(loaded, allow_secrets=allow_secrets)
    with tempfile.TemporaryFile() as archive:
        write(packed, archive)
        folder = new_folder(job.name)
        out.print(Text.assemble((folder.name, "bold"), f" on this machine, in {folder}"))
        show_plan(out, loaded, workers, packed)
        submit_here(job, archive if packed.digest else None, packed.digest, folder, loaded.parameters)
        recording.note_source(folder, packed.root)
    return folder, job, workers


def resume_local(name: str, seconds: int | None, *, as_json: bool) -> int:
    """Resume a run of this machine from its newest complete checkpoint; return the exit code. ``seconds``:
    its maximum run time, instead of the job's ``time``."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    folder, job = find_here(name)
    job = timed(job, seconds)
    return _run(out, job, workers_of(job), folder, as_json=as_json)


def rerun_local(name: str, *, exact: bool, as_json: bool) -> int:
    """Run a run of this machine again from its beginning; return the exit code."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    before, job = find_here(name)
    record, exactly = record_of(before), []
    if exact:
        from causeway.commands.repeating import repeated_here, show_differences
        from causeway.overview import OfMachine

        known = OfMachine(name).known()
        exactly = [*known.packages]
        show_differences(out, name, repeated_here(known))
    job = seeded(job)
    with ExitStack() as stack:
        # Opened first, since creating a run removes the code of old runs.
        archive = stack.enter_context(code_of(before)) if record["code"] else None
        folder = new_folder(job.name)
        out.print(Text.assemble((folder.name, "bold"), f" on this machine, in {folder}"))
        submit_here(job, archive, record["code"], folder, record.get("parameters", {}), exactly)
    return _run(out, job, workers_of(job), folder, as_json=as_json)


def _run(out: Console, job: Job, workers: Sequence[Workers], folder: Path, *, as_json: bool) -> int:
    ended = run_here(job, workers, folder, _printer(out, workers))
    _show_end(out, ended, job)
    recording.begin(job, folder, lambda line: out.print(Text(f"  {line}", style="dim")))
    if as_json:
        print(json.dumps({"run": ended.run, "state": ended.state, "folder": str(ended.folder),
                          "seconds": round(ended.seconds, 3), "first_failure": ended.first}))  # fmt: skip
    return {"done": 0, "stopped": 130}.get(ended.state, 1)


def show_plan(out: Console, loaded: LoadedJob, workers: Sequence[Workers], packed: Packed) -> None:
    """Print what will run, in a few lines."""
    if packed.digest:
        out.print(f"  code     {packed.described}")
    for each in workers:
        many = f"{each.count} x " if each.count > 1 else ""
        out.print(Text(f"  {each.role:<8} {many}{each.launch.script.splitlines()[-1]}"))
        if each.launch.why:
            out.print(Text(f"  {'launcher':<8} {each.launch.launcher}: {each.launch.why}"))
        if each.launch.note:
            out.print(f"           {each.launch.note}", style="yellow")
    for note in loaded.notes:
        out.print(f"           {note}", style="yellow")
    last = "the command" if len(workers) == 1 else f"the role {ends_with(workers)}"
    out.print(f"  ends     with {last}, or after {format_duration(loaded.job.time)}")


def _printer(out: Console, workers: Sequence[Workers]) -> Callable[[str, str], None]:
    return printer(out, [f"{each.role}-{rank}" for each in workers for rank in range(each.count)])


def printer(out: Console, names: Sequence[str]) -> Callable[[str, str], None]:
    """Return a function that prints a worker's line, with the worker's name if there are several."""
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(names)}
    width = max(map(len, names), default=0)

    def show(name: str, line: str) -> None:
        if len(names) > 1 and name:
            out.print(Text.assemble((f"{name:<{width}} │ ", colours.get(name, "")), line))
        else:
            out.print(Text(line))

    return show


def _show_end(out: Console, ended: Ended, job: Job) -> None:
    after = f"after {format_duration(ended.seconds)}" if ended.seconds >= 1 else f"in {ended.seconds:.1f}s"
    style = {"done": "green", "stopped": "yellow"}.get(ended.state, "red")
    results = f"results in {ended.folder / 'results'}"
    out.print(Text.assemble((f"{ended.run} {ended.state}", style), f" {after}; {results}"))
    if ended.first is not None and ended.state == "failed":
        show_failure(out, ended.first, job.code, here=True)
    if ended.state != "done" and ended.resumable:
        out.print(Text(f"  causeway resume --local {ended.run} resumes from its last checkpoint"))
