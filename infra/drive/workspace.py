"""Writes rendered files to disk: all or none, only our own files, and only those that changed.

A killed run leaves either the old files or the new ones, or a ``.ready`` folder with the rest of the new
ones; the next run then completes the move first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from infra.drive.build_folders import Folders, private
from infra.drive.flock import Taken, held
from infra.errors import DriveError, newer
from infra.files import Files

STAGING = ".staging"
"""New files while they are being written: incomplete."""
READY = ".ready"
"""New files, complete, while they are moved into place: the move is always completed, never undone."""
KEPT_ASIDE = ".orig"

_VERSION = 1
"""Of the manifest's form."""
_RESERVED = frozenset({STAGING, READY, "state", "manifest.json", ".unprotected"})


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write, with paths relative to the build folder, sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    kept_aside: tuple[str, ...]
    """Files that were changed by hand: their earlier contents are in ``<path>.orig``."""


@contextmanager
def locked(build: Path, *, timeout: float = 0) -> Iterator[None]:
    """Hold the lock of ``build``; may be nested within a process.

    Raises ``DriveError`` if another process holds it after ``timeout`` seconds. The operating system
    releases the lock of a process that died.
    """
    folders = Folders(build.absolute())
    private(folders.state)
    path = folders.lock
    try:
        with held(path, timeout=timeout, nested=True):
            yield
    except Taken as taken:
        who = f" ({taken})" if str(taken) else ""
        raise DriveError(
            f"{build}: another run is working on this environment{who}; wait until it is done, then run this "
            "again"
        ) from None


def write(build: Path, files: Files) -> Written:
    """Write ``files`` to ``build`` and delete the files written earlier that are not among them.

    Other files are kept. Unchanged files keep their modification time. A text that starts with ``#!``
    becomes executable. Raises ValueError for a path outside of ``build`` or reserved for internal use.
    """
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts or parts[0] in _RESERVED:
            raise ValueError(f"a renderer wants to write {path!r}")
    with locked(build):
        _finish(build)
        return _write(build, files)


def owned(build: Path) -> dict[str, str]:
    """Path → SHA-256 of every file written by us; empty before the first write."""
    try:
        found = json.loads((build / "manifest.json").read_text(encoding="utf-8"))
        if found["version"] > _VERSION:
            raise DriveError(f"{build / 'manifest.json'}: {newer(found['version'], _VERSION)}")
        listed = found["files"]
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError):
        raise DriveError(
            f"{build / 'manifest.json'} can't be read; remove it and render again: files that differ from "
            f"what is rendered are then kept as *{KEPT_ASIDE}"
        ) from None
    assert isinstance(listed, dict)
    return listed


def fingerprint(files: Files) -> str:
    """One SHA-256 over paths and texts, regardless of their order."""
    told = hashlib.sha256()
    for path, text in sorted(files.items()):
        told.update(f"{path}\0{len(text)}\0{text}".encode())
    return told.hexdigest()


def _write(build: Path, files: Files) -> Written:
    before = owned(build)
    added, changed, unchanged, kept = [], [], [], []
    after: dict[str, str] = {}
    staging = build / STAGING
    folders: set[Path] = set()
    for path, text in sorted(files.items()):
        wanted = text.encode()
        after[path] = hashlib.sha256(wanted).hexdigest()
        mode = 0o755 if text.startswith("#!") else 0o644
        target = build / path
        present = _read(target)
        if present == wanted and (target.stat().st_mode & 0o777) == mode:
            unchanged.append(path)
            continue
        if present is None:
            added.append(path)
        else:
            changed.append(path)
            if present != wanted and hashlib.sha256(present).hexdigest() != before.get(path):
                _keep_aside(target)
                kept.append(path)
        staged = staging / "files" / path
        if staged.parent not in folders:
            staged.parent.mkdir(parents=True, exist_ok=True)
            folders.add(staged.parent)
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:  # noqa: PTH123
            stream.write(wanted)
            os.fchmod(stream.fileno(), mode)  # regardless of the umask
    stale = sorted(before.keys() - after.keys())
    removed = []
    for path in stale:
        present = _read(build / path)
        if present is None:
            continue
        removed.append(path)
        if hashlib.sha256(present).hexdigest() != before[path]:
            _keep_aside(build / path)
            kept.append(path)
    if added or changed or before != after:
        staging.mkdir(parents=True, exist_ok=True)
        journal = json.dumps({"manifest": after, "remove": stale})
        (staging / "journal.json").write_text(journal, encoding="utf-8")
        staging.rename(build / READY)  # from here on the new files are the valid ones
        _finish(build)
    return Written(tuple(added), tuple(changed), tuple(removed), tuple(unchanged), tuple(sorted(kept)))


def _finish(build: Path) -> None:
    """Move the completed files into place; may be repeated from any point."""
    shutil.rmtree(build / STAGING, ignore_errors=True)
    ready = build / READY
    if not ready.is_dir():
        return
    journal_file = ready / "journal.json"
    if journal_file.exists():
        try:
            journal = json.loads(journal_file.read_text(encoding="utf-8"))
        except ValueError:
            raise DriveError(f"{journal_file} can't be read; remove {ready} and render again") from None
        for path in journal["remove"]:
            _remove(build, path)
        if (ready / "files").is_dir():
            _place(ready / "files", build)
        _write_manifest(build, journal["manifest"])
        journal_file.unlink()
    # Without its journal the folder has already been emptied.
    shutil.rmtree(ready, ignore_errors=True)


def _place(staged: Path, target: Path) -> None:
    """Move the contents of a folder into another one; a folder that does not exist there is moved as a
    whole.

    What is missing in ``staged`` was moved by an earlier run.
    """
    with os.scandir(staged) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        there = target / entry.name
        if entry.is_dir(follow_symlinks=False) and there.is_dir():
            _place(Path(entry.path), there)
            continue
        try:
            Path(entry.path).replace(there)
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as problem:
            raise DriveError(
                f"{there} can't be written: something that is not ours is in the way ({problem}); move it, "
                "then run this again"
            ) from None


def _write_manifest(build: Path, manifest: Mapping[str, str]) -> None:
    text = json.dumps({"version": _VERSION, "files": dict(sorted(manifest.items()))}, indent=1) + "\n"
    fresh = build / READY / "manifest.json"
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(build / "manifest.json")


def _remove(build: Path, path: str) -> None:
    """Delete a file of ours, and the folders that become empty."""
    target = build / path
    try:
        target.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (IsADirectoryError, PermissionError):
        if target.is_dir():
            return  # a new file's folder has replaced it: this move was begun before
        raise
    for folder in target.parents:
        if folder == build:
            return
        try:
            folder.rmdir()
        except OSError:
            return  # not empty: it contains other files


def _keep_aside(target: Path) -> None:
    """Copy a file that was changed by hand to another name."""
    shutil.copy2(target, target.with_name(target.name + KEPT_ASIDE))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
