"""The last apply: a snapshot of the rendered files and the spec."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.drive.build_folders import Folders
from infra.errors import DriveError, newer
from infra.files import Files

_ABOUT = "applied.json"
_VERSION = 1
"""Of the snapshot's form. One that says none is of version 1."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A snapshot. ``about`` is what the caller records: spec, time, engine."""

    files: Mapping[str, str]
    about: Mapping[str, Any]


def remember(folders: Folders, files: Files, about: Mapping[str, Any]) -> None:
    """Replace the snapshot atomically."""
    fresh = folders.applied.with_name("applied.new")
    shutil.rmtree(fresh, ignore_errors=True)
    for path, text in files.items():
        target = fresh / "files" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="")
    fresh.mkdir(parents=True, exist_ok=True)
    (fresh / _ABOUT).write_text(json.dumps({"version": _VERSION, **about}, indent=1) + "\n", encoding="utf-8")
    _swap(fresh, folders.applied)


def refile(folders: Folders, files: Files) -> None:
    """Replace the files in the snapshot, after rendering with the outputs of that apply. The rest is kept.
    Does nothing without a snapshot."""
    if (told := about(folders)) is not None:
        remember(folders, files, told)


def recall(folders: Folders) -> Applied | None:
    """The snapshot, or None if nothing is applied (or everything was destroyed)."""
    for place in (folders.applied, _aside(folders.applied)):
        if (place / _ABOUT).is_file():
            root = place / "files"
            try:
                files = {
                    path.relative_to(root).as_posix(): path.read_bytes().decode()
                    for path in sorted(root.rglob("*"))
                    if path.is_file()
                }
            except UnicodeDecodeError:
                raise damaged(place) from None
            return Applied(files, _told(place))
    return None


def about(folders: Folders) -> Mapping[str, Any] | None:
    """The ``about`` of the snapshot, without reading its files; None if nothing is applied."""
    for place in (folders.applied, _aside(folders.applied)):
        if (place / _ABOUT).is_file():
            return _told(place)
    return None


def forget(folders: Folders) -> None:
    """Delete the snapshot: nothing is applied any more."""
    shutil.rmtree(_aside(folders.applied), ignore_errors=True)
    shutil.rmtree(folders.applied, ignore_errors=True)


def damaged(place: Path) -> DriveError:
    """The error for a snapshot that cannot be read, with the fix."""
    return DriveError(
        f"{place / _ABOUT} is damaged; restore it from a backup, or remove {place}: until the next apply it "
        "is then not known what was applied, and what can't change on a live cluster is not refused"
    )


def _told(place: Path) -> Mapping[str, Any]:
    try:
        told = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
    except ValueError:
        raise damaged(place) from None
    if not isinstance(told, dict):
        raise damaged(place)
    version = told.pop("version", _VERSION)
    if not isinstance(version, int):
        raise damaged(place)
    if version > _VERSION:
        raise DriveError(f"{place / _ABOUT}: {newer(version, _VERSION)}")
    return told


def _swap(fresh: Path, place: Path) -> None:
    old = _aside(place)
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    fresh.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def _aside(place: Path) -> Path:
    """The path of the old snapshot between the two renames; it is valid until the new one is in place."""
    return place.with_name("applied.old")
