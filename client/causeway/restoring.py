"""Restores the newest complete checkpoint of a run before a worker starts, whichever worker and site wrote
it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from causeway import checkpoints
from causeway.checkpoints import Checkpoint, Part, Policy
from causeway.saving import RESUMED, digest_of, files_of, folder_of, parts_in
from causeway.storage import MissingError, Storage

_LINKING = ".linking"
"""Lock file beside the code, held while the folder of checkpoints is linked."""


class BrokenError(Exception):
    """A checkpoint differs from what was written."""


def restore(storages: Sequence[Storage], policy: Policy, folder: Path) -> list[str]:
    """Put the newest complete checkpoint into the folder, and record this start. Returns messages for the
    user.

    ``storages``: that of the run, then those of the runs that it continues, the nearest first.
    """
    for path in list(folder.iterdir()):
        # Left by an earlier start: what was not copied may be incomplete.
        if checkpoints.is_checkpoint(path.name):
            _remove(path)
    said: list[str] = []
    start, found = 1, None
    for at, storage in enumerate(storages):
        unreadable: list[str] = []
        parts = parts_in(storage, unreadable)
        said += [f"skips a checkpoint: its manifest cannot be read: {key}" for key in unreadable]
        if at == 0:
            start = checkpoints.next_start(parts)
        for checkpoint in [] if found else checkpoints.whole(parts, policy.workers):
            try:
                fetch(storage, checkpoint, folder)
            except BrokenError as error:
                said.append(f"skips the checkpoint {checkpoint.name}: {error}")
                continue
            found = checkpoint
            break
    if found:
        said.append(f"resumes from {found.name}")
    elif said:
        said.append("starts from the beginning: no checkpoint is complete")
    resumed = {
        "start": start,
        "name": found.name if found else "",
        "written": found.written if found else 0,
        "ids": [part.id for part in found.parts] if found else [],
        "said": said,
    }
    (folder / RESUMED).write_text(json.dumps(resumed), encoding="utf-8")
    return said


def fetch(storage: Storage, checkpoint: Checkpoint, folder: Path) -> None:
    """Put a complete checkpoint into a folder, under its own name. Raises BrokenError if it is damaged."""
    scratch = folder / ".resuming"
    _remove(scratch)
    try:
        for part in checkpoint.parts:
            _fetch_part(storage, part, scratch)
        (scratch / checkpoint.name).rename(folder / checkpoint.name)
    finally:
        _remove(scratch)


def _fetch_part(storage: Storage, part: Part, scratch: Path) -> None:
    files = files_of(part)
    there = storage.sizes(folder_of(part))
    for key, file in files.items():
        if there.get(key) != file.size:
            what = "is missing" if key not in there else f"has {there[key]} bytes instead of {file.size}"
            raise BrokenError(f"{file.path} {what}")
        place = (scratch / file.path).resolve()
        if not place.is_relative_to((scratch / part.name).resolve()):
            raise BrokenError(f"{file.path} is outside of its folder")
        place.parent.mkdir(parents=True, exist_ok=True)
    try:
        storage.fetch({key: scratch / file.path for key, file in files.items()})
    except MissingError as error:
        raise BrokenError(f"{error} is missing") from None
    for file in files.values():
        path = scratch / file.path
        if digest_of(path) != file.sha256:
            raise BrokenError(f"{file.path} does not match its digest")
        os.utime(path, ns=(file.modified, file.modified))
    for path in scratch.rglob("*"):
        # The program may run under another uid than this process.
        path.chmod(0o777 if path.is_dir() else 0o666)


def link(code: Path, path: str, folder: Path) -> None:
    """Replace ``path`` of the code by a link to the folder of checkpoints; files of the code are moved there.
    Workers of one machine may do so at the same time: a lock beside the code serialises them."""
    there = code / path
    with (code.parent / _LINKING).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if there.is_symlink() and there.readlink() == folder:
            return
        there.parent.mkdir(parents=True, exist_ok=True)
        if there.is_dir() and not there.is_symlink():
            for each in there.iterdir():
                if not (folder / each.name).exists():
                    each.rename(folder / each.name)
        _remove(there)
        there.symlink_to(folder, target_is_directory=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
