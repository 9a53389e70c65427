"""``code``, ``get``, ``put``: copy files of a run to and from this machine."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from causeway.cluster import runs
from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run
from causeway.cluster.store import Kept, Store
from causeway.commands.describing import counted_files
from causeway.errors import CausewayError, InputError, Problem
from causeway.job import Job, recorded
from causeway.units import format_size
from causeway.workers import ends_with, workers_of

_RESULTS = "results/"


def code(
    name: str, group: str | None, target: str, *, local: bool, on: Sequence[str] | None, as_json: bool
) -> int:
    """Write the code of a run into a folder that does not exist yet."""
    digest, _, unpack = _code_of(name, group, local=local, on=on)
    folder = Path(target or name)
    if folder.exists():
        raise CausewayError(f"{folder} exists; name another folder")
    unpack(folder)
    _say(f"{name}'s code is in {folder}", as_json, {"run": name, "folder": str(folder), "code": digest})
    return 0


def diff(
    name: str, group: str | None, target: str, *, local: bool, on: Sequence[str] | None, as_json: bool
) -> int:
    """Print the differences between the code of a run and a folder."""
    from causeway.code.difference import changes, unified
    from causeway.code.tree import list_tree
    from causeway.job import Code

    _, job, unpack = _code_of(name, group, local=local, on=on)
    folder = Path(target or ".")
    which = job.code if isinstance(job.code, Code) else Code()
    entries = list_tree(folder, include=which.include, exclude=which.exclude)
    with tempfile.TemporaryDirectory() as scratch:
        shipped = Path(scratch, "code")
        unpack(shipped)
        found = list(changes(shipped, folder, [entry.path for entry in entries]))
        if as_json:
            print(json.dumps([{"path": path, "change": change} for path, change in found]))
            return 0
        for path, _ in found:
            sys.stdout.writelines(unified(shipped, folder, path))
    return 0


def _code_of(
    name: str, group: str | None, *, local: bool, on: Sequence[str] | None
) -> tuple[str, Job, Callable[[Path], None]]:
    """Return the archive name of a run's code, its job, and the function that unpacks the code."""
    unpack: Callable[[Path], None]
    if on is not None:
        from causeway.machines import runs as machines
        from causeway.overview import OfMachines

        there = machines.find(name, on)
        digest, job, unpack = there.record["code"], machines.job_of(there)[0], OfMachines(there).unpack
    elif local:
        from causeway.local import find_here, record_of, unpack_here

        here, job = find_here(name)
        digest, unpack = str(record_of(here)["code"]), partial(unpack_here, here)
    else:
        store, run = _opened(name, group)
        job = recorded(run.job, run.name)
        digest, unpack = run.code, partial(store.unpack_code, run.code)
    if not digest:
        raise CausewayError(f"{name} was submitted without code")
    return digest, job, unpack


def get(name: str, group: str | None, path: str, target: str, *, as_json: bool) -> int:
    """Fetch the results of a run, all of them or those at ``path``, into a folder.

    The first worker's files are placed at the top, those of other workers in a folder named after the worker.
    Files that were fetched before and have not changed are skipped.
    """
    store, run = _opened(name, group)
    first = first_worker(run)
    wanted = [
        (each, place)
        for each in store.kept(run.name, _RESULTS)
        for place in [_place(each.name, first)]
        if not path or place == PurePosixPath(path) or PurePosixPath(path) in place.parents
    ]
    if not wanted:
        below = f" at {path}" if path else ""
        raise CausewayError(
            f"{name} has left no results{below}; a program writes them below $CAUSEWAY_RESULTS, "
            "and within half a minute they are in the store"
        )
    folder = Path(target or name)
    fetched = 0
    with _progress(sum(each.size for each, _ in wanted)) as advance:
        for each, place in wanted:
            there = folder / place
            if not _same(there, each):
                there.parent.mkdir(parents=True, exist_ok=True)
                store.download(each, there)
                os.utime(there, (each.modified, each.modified))
                fetched += 1
            advance(each.size)
    size = sum(each.size for each, _ in wanted)
    said = {"run": name, "folder": str(folder), "files": len(wanted), "fetched": fetched, "bytes": size}
    _say(f"{counted_files(len(wanted))}, {format_size(size)}, in {folder}", as_json, said)
    return 0


def put(name: str, group: str | None, sources: Sequence[str], *, as_json: bool) -> int:
    """Upload files and folders to a run's results."""
    missing = [
        Problem("causeway put", "", f"{each}: no such file") for each in sources if not Path(each).exists()
    ]
    if missing:
        raise InputError(missing)
    store, run = _opened(name, group)
    files = [found for each in sources for found in _files(Path(each))]
    size = sum(path.stat().st_size for path, _ in files)
    with _progress(size) as advance:
        for path, place in files:
            store.upload(path, run.name, f"{_RESULTS}{first_worker(run)}/{place}")
            advance(path.stat().st_size)
    said = {"run": name, "files": len(files), "bytes": size}
    is_ = "is" if len(files) == 1 else "are"
    text = f"{counted_files(len(files))}, {format_size(size)}, {is_} with {name}'s results"
    _say(text, as_json, said)
    return 0


def first_worker(run: Run) -> str:
    """Return the name of the first worker: ``chief-0`` or ``worker-0``."""
    return f"{ends_with(workers_of(recorded(run.job, run.name)))}-0"


def _place(name: str, first: str) -> PurePosixPath:
    """Return where a file is placed in the folder. Raises CausewayError if it would be outside."""
    worker, _, rest = name.partition("/")
    place = PurePosixPath(rest) if worker == first else PurePosixPath(worker, rest)
    if place.is_absolute() or ".." in place.parts:
        raise CausewayError(f"the store has a file with a path outside of its folder: {name}")
    return place


def _same(there: Path, kept: Kept) -> bool:
    if not there.is_file():
        return False
    about = there.stat()
    return about.st_size == kept.size and int(about.st_mtime) >= int(kept.modified)


def _files(source: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, name relative to the results); a folder keeps its name."""
    if source.is_file():
        yield source, source.name
        return
    root = source.resolve()
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path, path.relative_to(root.parent).as_posix()


def _opened(name: str, group: str | None) -> tuple[Store, Run]:
    cluster = Cluster()
    namespace = cluster.namespace(group)
    return Store(cluster, namespace), runs.find(cluster, namespace, name, placed=False)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal. Yields a function to call with the number of bytes done."""
    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=total)
        yield lambda size: shown.advance(task, size)


def _say(text: str, as_json: bool, values: dict[str, object]) -> None:
    if as_json:
        print(json.dumps(values))
    else:
        Console(highlight=False, soft_wrap=True).print(text)
