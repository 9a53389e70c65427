"""``checkpoints`` and ``get --checkpoint``: list the checkpoints of a run, fetch one into a folder."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from causeway.checkpoints import Checkpoint, Part, Policy, whole
from causeway.commands.tables import table
from causeway.errors import CausewayError, InputError, Problem
from causeway.job import recorded
from causeway.kept import rows
from causeway.machines.state import Run
from causeway.restoring import BrokenError, fetch
from causeway.saving import files_of, folder_of, parts_in
from causeway.storage import Folder
from causeway.units import format_duration, format_size
from causeway.workers import policy_of, workers_of


def listed(name: str, group: str | None, *, local: bool, on: Sequence[str] | None, as_json: bool) -> int:
    """List the checkpoints of a run, the newest first."""
    found = rows(*_of_run(name, group, local=local, on=on)[:2])
    if as_json:
        print(json.dumps([each.plain() for each in found]))
        return 0
    out, now = Console(highlight=False, soft_wrap=True), time.time()
    if not found:
        out.print(f"{name} has no checkpoints")
        return 0
    cells: list[tuple[str | Text, ...]] = [
        (
            each.name,
            str(each.step),
            format_size(each.size),
            format_duration(now - each.written),
            each.site,
            each.state,
        )
        for each in found
    ]
    out.print(table(out, ("CHECKPOINT", "STEP", "SIZE", "AGE", "SITE", "STATE"), cells))
    return 0


def fetched(
    name: str,
    group: str | None,
    checkpoint: str,
    target: str,
    *,
    local: bool,
    on: Sequence[str] | None,
    as_json: bool,
) -> int:
    """Fetch a complete checkpoint of a run into a folder, by default one named after the run."""
    parts, policy, bring = _of_run(name, group, local=local, on=on)
    found = whole(parts, policy.workers)
    chosen = next((each for each in found if each.name == checkpoint), None)
    if chosen is None:
        there = ", ".join(each.name for each in found) or "no complete one"
        raise InputError(
            [Problem("--checkpoint", checkpoint, f"{name} has no such checkpoint", f"there is {there}")]
        )
    folder = Path(target or name)
    if (folder / chosen.name).exists():
        raise CausewayError(f"{folder / chosen.name} exists; name another folder with --to")
    try:
        bring(chosen, folder)
    except BrokenError as error:
        raise CausewayError(
            f"{checkpoint} of {name}: {error}; causeway checkpoints {name} lists the others"
        ) from None
    place = folder / chosen.name
    print(json.dumps({"run": name, "checkpoint": checkpoint, "path": str(place)}) if as_json else f"{place}")
    return 0


_Bring = Callable[[Checkpoint, Path], None]
"""Puts a checkpoint into a folder. Raises BrokenError, CausewayError."""


def _of_run(
    name: str, group: str | None, *, local: bool, on: Sequence[str] | None
) -> tuple[Sequence[Part], Policy, _Bring]:
    """Return its checkpoints, its job's policy, and the function that fetches one. Raises CausewayError if
    the run does not exist."""
    if on is not None:
        from causeway.machines import runs as machines

        run = machines.find(name, on)
        policy = policy_of(*machines.job_of(run))
        return machines.left(run).parts, policy, partial(_from_machine, run)
    if local:
        from causeway.local import find_here

        folder, job = find_here(name)
        here = Folder(folder / "kept")
        return parts_in(here), policy_of(job, workers_of(job)), partial(fetch, here)
    from causeway.cluster import runs
    from causeway.cluster.connection import Cluster
    from causeway.cluster.offer import volume_of
    from causeway.cluster.store import Store, asked

    cluster = Cluster()
    namespace = cluster.namespace(group)
    job = recorded(runs.find(cluster, namespace, name, placed=False).job, name)
    storage, volume = (
        Store(cluster, namespace).of_run(name, "checkpoints/"),
        volume_of(job, namespace, cluster.offer),
    )

    def bring(checkpoint: Checkpoint, folder: Path) -> None:
        if volume:
            at = f"{volume[1]}/{name}/{folder_of(checkpoint.parts[0])}{checkpoint.name}"
            raise CausewayError(f"{checkpoint.name} of {name} is on a mount of the cluster: {at}")
        with asked("look for checkpoints"):
            fetch(storage, checkpoint, folder)

    with asked("look for checkpoints"):
        return parts_in(storage), policy_of(job, workers_of(job)), bring


def _from_machine(run: Run, checkpoint: Checkpoint, folder: Path) -> None:
    from causeway.machines import runs as machines

    folder.mkdir(parents=True, exist_ok=True)
    keys = [key for part in checkpoint.parts for key in files_of(part)]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
        machines.bring(run, keys, Path(scratch))
        fetch(_Moved(Path(scratch)), checkpoint, folder)


class _Moved(Folder):
    """A folder from which files are moved instead of copied, so that large files take up space only once."""

    def fetch(self, files: Mapping[str, Path]) -> None:
        for key, path in files.items():
            (self._root / key).replace(path)
