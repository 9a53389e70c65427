"""Copies a worker's checkpoints to the run's storage, and removes those that are not kept.

Keys, below ``checkpoints/`` of the run:

- ``files/<worker>/<id>/<path>``: the files of a part (``causeway.checkpoints``);
- ``manifests/<worker>/<id>.json``: its manifest, written when all files are there, and removed before they
  are.

A worker writes and removes nothing of others, so what it may do is up to it alone, whenever it is killed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from causeway import checkpoints, reported
from causeway.checkpoints import Entry, File, Part, Policy
from causeway.runtime import STOPPED
from causeway.storage import MANIFESTS, MissingError, Storage

RESUMED = ".resumed.json"
"""File in the folder of checkpoints, written by ``causeway.restoring``: this start, and what it resumes
from."""
SAVED = "causeway: saved "
"""Prefix of a line in which the sidecar reports its last checkpoint, for ``causeway ps``: JSON with ``name``,
``bytes``, ``seconds`` of copying, and ``at``, when it was written."""
_SENDING = ".sending"
"""File in the folder of checkpoints: the name of the one that is being read. ``causeway.checkpoint`` does not
remove that one."""
_SENT = ".sent"
"""File in the folder of checkpoints: names of those in the storage. Of sharded ones, only these are
removed."""


@dataclass(frozen=True)
class Start:
    """A start of a run, as a worker knows it."""

    number: int
    name: str
    """Name of the checkpoint that it resumes from; empty if there is none."""
    written: int
    """When that was written, in nanoseconds since the epoch."""
    ids: tuple[str, ...]
    """Ids of its parts."""

    @classmethod
    def of(cls, folder: Path) -> Start:
        found = json.loads((folder / RESUMED).read_text(encoding="utf-8"))
        return cls(found["start"], found["name"], found["written"], tuple(found["ids"]))


class Saver:
    """Copies the checkpoints of one worker."""

    def __init__(
        self,
        folder: Path,
        storage: Storage,
        policy: Policy,
        worker: str,
        metrics: Path,
        site: str = "",
    ) -> None:
        """``folder``: where the program writes checkpoints. ``metrics``: the file that it reports to.
        ``site``: where this worker is."""
        self._folder = folder
        self._storage = storage
        self._policy = policy
        self._worker = worker
        self._metrics = metrics
        self._site = site
        self._handled: set[tuple[str, int]] = set()
        """Entries that the storage has, or that were skipped for newer ones: name and time."""
        self._start: Start | None = None
        self._own: list[Part] = []
        """Its parts in the storage."""
        self._unfinished: list[str] = []
        """Keys of parts that may be incomplete."""

    def save(self, alive: int | None) -> None:
        """Copy complete checkpoints that the storage does not have.

        ``alive``: until when the program may have been writing (``checkpoints.is_whole``).
        """
        if not self._folder.is_dir():
            _say_once(f"{self._folder} is not a folder any more: nothing is copied from it")
            return
        if self._start is None:
            self._own = self._tidy()
            self._start = Start.of(self._folder)
            self._handled = self._handled_before(self._start)
        changed = self._measure(self._start)
        while (entry := self._next(alive)) is not None and self._send(entry, self._start):
            changed = True
        if changed:
            self._remove_obsolete(self._start)

    @property
    def newest(self) -> Part | None:
        """Return its part of the last checkpoint in the storage."""
        return max(self._own, key=lambda part: part.order, default=None)

    def _next(self, alive: int | None) -> Entry | None:
        in_order = len(self._policy.workers) > 1
        new = [entry for entry in self._whole(alive) if (entry.name, entry.written) not in self._handled]
        chosen = checkpoints.next_to_send(new, in_order=in_order)
        if not in_order:
            self._handled |= {(entry.name, entry.written) for entry in new if entry != chosen}
        return chosen

    def _whole(self, alive: int | None) -> Iterator[Entry]:
        for entry in look(self._folder):
            if checkpoints.is_whole(entry, alive):
                yield entry
            elif not all(map(checkpoints.is_text, [entry.name, *entry.files])):
                _say_once(f"{entry.name!a} is not copied: its name is not UTF-8")

    def _handled_before(self, start: Start) -> set[tuple[str, int]]:
        """Return what this start resumed from, and what was sent or skipped before this program was
        restarted."""
        sent = [part for part in self._own if part.start == start.number]
        handled = {(start.name, start.written), *((part.name, part.written) for part in sent)}
        if not sent:
            return handled
        newest = max(sent, key=lambda part: part.order)
        old = (
            entry for entry in look(self._folder) if entry.files and checkpoints.passed_over(entry, newest)
        )
        return handled | {(entry.name, entry.written) for entry in old}

    def _tidy(self) -> list[Part]:
        """Return its parts in the storage. Removes what an earlier start, or an earlier process, left
        unfinished."""
        unreadable: list[str] = []
        parts = [part for part in parts_in(self._storage, unreadable) if part.worker == self._worker]
        whole = tuple(folder_of(part) for part in parts)
        found = self._storage.sizes(f"files/{self._worker}/")
        self._storage.remove([key for key in unreadable if key.startswith(f"{MANIFESTS}{self._worker}/")])
        self._storage.remove([key for key in found if not key.startswith(whole)])
        return parts

    def _measure(self, start: Start) -> bool:
        """Add metrics reported since then to existing manifests."""
        metrics = _reported(self._metrics) if self._policy.metric else {}
        changed = False
        for at, part in enumerate(self._own):
            now = checkpoints.measured(part, metrics)
            # A later start reports the same steps again.
            if now != part and part.start == start.number:
                self._storage.write(_manifest(now), now.text().encode())
                self._own[at] = now
                changed = True
        return changed

    def _send(self, entry: Entry, start: Start) -> bool:
        """Upload an entry; return whether it is in the storage now. One that was removed or changed meanwhile
        is not."""
        self._storage.remove(self._unfinished)
        began = time.monotonic()
        mark = self._folder / _SENDING
        mark.write_text(entry.name, encoding="utf-8")
        try:
            files = tuple(
                File(path, size, digest_of(self._folder / path), modified)
                for path, (size, modified) in entry.files.items()
            )
            before = (each.sequence for each in self._own if each.start == start.number)
            sequence = 1 + max(before, default=0)
            part = Part(self._worker, entry.name, start.number, files, sequence=sequence, site=self._site)
            wanted = {key: self._folder / file.path for key, file in files_of(part).items()}
            self._unfinished = [*wanted]
            self._storage.send(wanted)
        except FileNotFoundError:
            return False
        finally:
            mark.unlink(missing_ok=True)
        if _entry(self._folder, entry.name) != entry:
            return False
        part = replace(part, seconds=round(time.monotonic() - began, 3))
        part = checkpoints.measured(part, _reported(self._metrics))
        self._storage.write(_manifest(part), part.text().encode())
        self._own.append(part)
        self._handled.add((entry.name, entry.written))
        self._unfinished = []
        sent = [each.name for each in self._own if each.start == start.number]
        (self._folder / _SENT).write_text("\n".join(sent), encoding="utf-8")
        return True

    def _remove_obsolete(self, start: Start) -> None:
        parts = self._own if len(self._policy.workers) == 1 else parts_in(self._storage)
        for part in checkpoints.obsolete(parts, self._policy, self._worker, start.ids):
            # In this order: a manifest promises that its files exist.
            self._storage.remove([_manifest(part)])
            self._storage.remove(files_of(part))
            self._own = [each for each in self._own if each.id != part.id]


def parts_in(storage: Storage, unreadable: list[str] | None = None) -> list[Part]:
    """Return all manifests of a run. Keys of unreadable ones are added to ``unreadable``."""
    parts = {key: _part(storage, key) for key in sorted(storage.sizes(MANIFESTS))}
    if unreadable is not None:
        unreadable += [key for key, part in parts.items() if part is False]
    return [part for part in parts.values() if part]


def _part(storage: Storage, key: str) -> Part | Literal[False] | None:
    """Read a manifest. False if it is not one; None if its worker has just removed it."""
    try:
        return Part.of(storage.read(key).decode())
    except MissingError:
        return None
    except (KeyError, TypeError, ValueError):
        return False


def files_of(part: Part) -> dict[str, File]:
    """Return key → the file of a part."""
    return {f"{folder_of(part)}{file.path}": file for file in part.files}


def alive_until(ended: Path) -> int | None:
    """Return until when a worker's program may have been writing, in nanoseconds since the epoch, according
    to the runtime's record. None if unknown."""
    try:
        said = json.loads(ended.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    # A program that ended by itself has written all of its files.
    left = said["exit"] in (0, STOPPED) and "signal" not in said
    return time.time_ns() + checkpoints.SETTLED * 10**9 if left else int(said["at"] * 1e9)


def look(folder: Path) -> Iterator[Entry]:
    """List a folder of checkpoints, without links and entries that disappear meanwhile."""
    for path in sorted(folder.iterdir()):
        if not path.is_symlink() and not path.name.startswith(".") and (entry := _entry(folder, path.name)):
            yield entry


def _entry(folder: Path, name: str) -> Entry | None:
    path = folder / name
    try:
        about = path.stat()
        files, modified = {}, [about.st_mtime_ns]
        for each in [path] if path.is_file() else sorted(path.rglob("*")):
            if each.is_symlink():
                continue
            of = each.stat()
            modified.append(of.st_mtime_ns)
            if each.is_file():
                files[each.relative_to(folder).as_posix()] = (of.st_size, of.st_mtime_ns)
    except FileNotFoundError:
        return None
    return Entry(name, files, about.st_ctime_ns, max(modified))


def folder_of(part: Part) -> str:
    """The key prefix of its files."""
    return f"files/{part.worker}/{part.id}/"


def _manifest(part: Part) -> str:
    return f"{MANIFESTS}{part.worker}/{part.id}.json"


def digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def _reported(path: Path) -> dict[int, dict[str, float]]:
    """Return step → metrics, as written by ``causeway.report``; for a step that was reported twice, the
    last."""
    found: dict[int, dict[str, float]] = {}
    try:
        lines: Sequence[str] = path.read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return found
    for line in lines:
        if (report := reported.parsed(line)) is not None:
            found.setdefault(report.step, {}).update(report.metrics)
        else:
            _say_once(f"reported metrics that cannot be parsed are left out: {line[:200]!r}")
    return found


@cache
def _say_once(text: str) -> None:
    print(f"causeway: {text}", file=sys.stderr)
