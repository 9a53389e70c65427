"""Secret files beside rendered ones: files that tools must read, with mode 0600."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.drive.build_folders import private

LISTING: Final = "private.json"
"""A file in ``state`` that lists our secret files, by path below the build folder. Contains no secret."""


def write(build: Path, folder: str, files: Mapping[str, str]) -> bool:
    """Write secret files to ``build/<folder>``, mode 0600, and delete ours that are not in ``files``.

    ``files``: path below ``folder`` → text. True if anything changed. Files are written atomically, and
    never readable by others, even for a moment.
    """
    wanted = {f"{folder}/{path}": text for path, text in files.items()}
    listing = private(build / "state") / LISTING
    before = set(_listed(listing))
    ours = {path for path in before if path.startswith(f"{folder}/")}
    changed = False
    # New files are listed first: a file that is not on the list would never be deleted.
    write_file(listing, json.dumps(sorted(before | wanted.keys()), indent=1) + "\n")
    for path, text in wanted.items():
        changed |= write_file(build / path, text)
    for path in ours - wanted.keys():
        (build / path).unlink(missing_ok=True)
        changed = True
    write_file(listing, json.dumps(sorted((before - ours) | wanted.keys()), indent=1) + "\n")
    return changed


def below(build: Path, folder: str) -> frozenset[str]:
    """The paths of our secret files in ``build/<folder>``, relative to it."""
    return frozenset(
        path.removeprefix(f"{folder}/")
        for path in _listed(build / "state" / LISTING)
        if path.startswith(f"{folder}/")
    )


def forget(build: Path) -> None:
    """Delete all secret files."""
    listing = build / "state" / LISTING
    for path in _listed(listing):
        (build / path).unlink(missing_ok=True)
    listing.unlink(missing_ok=True)


def write_file(path: Path, contents: str | bytes) -> bool:
    """Write a secret file atomically, with mode 0600. False if it existed with the same contents."""
    data = contents.encode() if isinstance(contents, str) else contents
    try:
        if path.read_bytes() == data and path.stat().st_mode & 0o777 == 0o600:
            return False
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
    fresh.replace(path)
    return True


def _listed(listing: Path) -> list[str]:
    try:
        found = json.loads(listing.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    return [path for path in found if isinstance(path, str)]
