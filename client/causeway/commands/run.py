"""``causeway run --local``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.code.archive import write_archive
from causeway.commands.failure import show_failure
from causeway.commands.packing import Packed, pack
from causeway.errors import CausewayError
from causeway.jobfile import LoadedJob, load
from causeway.local import Ended, new_folder, run_here
from causeway.units import format_duration
from causeway.workers import Workers, ends_with, workers_of

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def run_local(
    file: str | None,
    options: Mapping[str, Any],
    parameters: Mapping[str, str],
    *,
    allow_secrets: bool,
    as_json: bool,
) -> int:
    """Runs a job on this machine; returns the exit code."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    loaded = load(Path(file) if file else None, options, parameters)
    job = loaded.job
    workers = workers_of(job)
    packed = pack(loaded, allow_secrets=allow_secrets)
    with tempfile.TemporaryFile() as archive:
        if packed.digest and write_archive(packed.root, packed.entries, archive) != packed.digest:
            raise CausewayError(f"{packed.root} changed while it was packed; run it again")
        archive.seek(0)
        folder = new_folder(job.name)
        out.print(Text.assemble((folder.name, "bold"), f" on this machine, in {folder}"))
        show_plan(out, loaded, workers, packed)
        code = archive if packed.digest else None
        ended = run_here(job, workers, code, packed.digest, folder, _printer(out, workers))
    _show_end(out, ended)
    if as_json:
        print(json.dumps({"run": ended.run, "state": ended.state, "folder": str(ended.folder),
                          "seconds": round(ended.seconds, 3), "first_failure": ended.first}))  # fmt: skip
    return {"done": 0, "stopped": 130}.get(ended.state, 1)


def show_plan(out: Console, loaded: LoadedJob, workers: Sequence[Workers], packed: Packed) -> None:
    """What will run, in a few lines."""
    if packed.digest:
        out.print(f"  code     {packed.described}")
    for each in workers:
        many = f"{each.count} x " if each.count > 1 else ""
        out.print(Text(f"  {each.role:<8} {many}{each.launch.script.splitlines()[-1]}"))
        if each.launch.note:
            out.print(f"           {each.launch.note}", style="yellow")
    for note in loaded.notes:
        out.print(f"           {note}", style="yellow")
    last = "the command" if len(workers) == 1 else f"the role {ends_with(workers)}"
    out.print(f"  ends     with {last}, or after {format_duration(loaded.job.time)}")


def _printer(out: Console, workers: Sequence[Workers]) -> Callable[[str, str], None]:
    return printer(out, [f"{each.role}-{rank}" for each in workers for rank in range(each.count)])


def printer(out: Console, names: Sequence[str]) -> Callable[[str, str], None]:
    """Prints a worker's line, with the worker's name if there are several."""
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(names)}
    width = max(map(len, names), default=0)

    def show(name: str, line: str) -> None:
        if len(names) > 1 and name:
            out.print(Text.assemble((f"{name:<{width}} │ ", colours.get(name, "")), line))
        else:
            out.print(Text(line))

    return show


def _show_end(out: Console, ended: Ended) -> None:
    after = f"after {format_duration(ended.seconds)}" if ended.seconds >= 1 else f"in {ended.seconds:.1f}s"
    style = {"done": "green", "stopped": "yellow"}.get(ended.state, "red")
    results = f"results in {ended.folder / 'results'}"
    out.print(Text.assemble((f"{ended.run} {ended.state}", style), f" {after}; {results}"))
    if ended.first is not None and ended.state == "failed":
        show_failure(out, ended.first)
