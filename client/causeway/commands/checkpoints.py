"""``checkpoints``, and ``get --checkpoint``: those of a run that are kept, and one of them in a folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.checkpoints import Policy, whole
from causeway.commands.tables import table
from causeway.errors import CausewayError, InputError, Problem
from causeway.job import Job
from causeway.kept import rows
from causeway.restoring import BrokenError, fetch
from causeway.saving import folder_of, parts_in
from causeway.storage import Storage
from causeway.units import format_duration, format_size
from causeway.workers import policy_of, workers_of


def listed(name: str, group: str | None, *, local: bool, as_json: bool) -> int:
    """The checkpoints of a run, the newest first."""
    storage, policy, _ = _of_run(name, group, local=local)
    with _asked(local):
        found = rows(parts_in(storage), policy)
    if as_json:
        print(json.dumps([each.plain() for each in found]))
        return 0
    out, now = Console(highlight=False, soft_wrap=True), time.time()
    if not found:
        out.print(f"{name} has no checkpoint in the store")
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


def fetched(name: str, group: str | None, checkpoint: str, target: str, *, local: bool, as_json: bool) -> int:
    """Brings a whole checkpoint of a run into a folder, by default one of the run's name."""
    storage, policy, volume = _of_run(name, group, local=local)
    with _asked(local):
        found = whole(parts_in(storage), policy.workers)
    chosen = next((each for each in found if each.name == checkpoint), None)
    if chosen is None:
        there = ", ".join(each.name for each in found) or "none that is whole"
        raise InputError(
            [Problem("--checkpoint", checkpoint, f"{name} has no such checkpoint", f"there is {there}")]
        )
    if volume:
        at = f"{volume}/{name}/{folder_of(chosen.parts[0])}{chosen.name}"
        raise CausewayError(f"{checkpoint} of {name} is on a mount of the cluster: {at}")
    folder = Path(target or name)
    if (folder / chosen.name).exists():
        raise CausewayError(f"{folder / chosen.name} exists; name another folder with --to")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _asked(local):
            fetch(storage, chosen, folder)
    except BrokenError as error:
        raise CausewayError(
            f"{checkpoint} of {name}: {error}; causeway checkpoints {name} lists the others"
        ) from None
    place = folder / chosen.name
    print(json.dumps({"run": name, "checkpoint": checkpoint, "path": str(place)}) if as_json else f"{place}")
    return 0


def _of_run(name: str, group: str | None, *, local: bool) -> tuple[Storage, Policy, str]:
    """Where its checkpoints are, and what its job says of them; the folder of a mount that has their files,
    empty where the storage has. CausewayError for a run that is not there."""
    if local:
        from causeway.local import find_here
        from causeway.storage import Folder

        folder, job = find_here(name)
        return Folder(folder / "kept"), policy_of(job, workers_of(job)), ""
    from causeway.cluster import runs
    from causeway.cluster.connection import Cluster
    from causeway.cluster.offer import volume_of
    from causeway.cluster.store import Store

    cluster = Cluster()
    namespace = cluster.namespace(group)
    job = Job.model_validate(runs.find(cluster, namespace, name, placed=False).job)
    kept, policy = Store(cluster, namespace).of_run(name, "checkpoints/"), policy_of(job, workers_of(job))
    volume = volume_of(job, namespace, cluster.offer)
    return kept, policy, volume[1] if volume else ""


def _asked(local: bool) -> Any:
    """What the store refuses is an error for people."""
    from contextlib import nullcontext

    if local:
        return nullcontext()
    from causeway.cluster.store import asked

    return asked("look for checkpoints")
