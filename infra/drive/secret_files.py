"""Secret files beside rendered ones: what a tool must read, for its owner's eyes alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.drive.build_folders import private

LISTING: Final = "private.json"
"""In ``state``: which secret files are ours, by path below the build folder. Holds no secret."""


def write(build: Path, folder: str, files: Mapping[str, str]) -> bool:
    """Put secret files into ``build/<folder>``, mode 0600, and take away ours that are not wanted there now.

    ``files`` are paths below ``folder`` → text. True if anything changed. A file is never there half-written,
    and never, not for a moment, readable by others.
    """
    wanted = {f"{folder}/{path}": text for path, text in files.items()}
    listing = private(build / "state") / LISTING
    before = set(_listed(listing))
    ours = {path for path in before if path.startswith(f"{folder}/")}
    changed = False
    # What is about to be ours is listed first: a file that is not on the list would never be taken away.
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
    """Take all secret files away."""
    listing = build / "state" / LISTING
    for path in _listed(listing):
        (build / path).unlink(missing_ok=True)
    listing.unlink(missing_ok=True)


def write_file(path: Path, contents: str | bytes) -> bool:
    """One secret file, mode 0600, put in place in one step. False when it stood there just so."""
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
