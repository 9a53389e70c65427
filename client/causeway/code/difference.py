"""Compares shipped code with a folder."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def changes(shipped: Path, here: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (path, ``added``, ``changed`` or ``removed``), ordered by path. ``paths``: the code files of
    ``here``."""
    before = {
        Path(folder, name).relative_to(shipped).as_posix()
        for folder, folders, files in os.walk(shipped)
        for name in [*files, *(each for each in folders if Path(folder, each).is_symlink())]
    }
    for path in sorted(before | {*paths}):
        if path not in before:
            yield path, "added"
        elif path not in paths:
            yield path, "removed"
        elif _content(shipped / path) != _content(here / path):
            yield path, "changed"


def unified(shipped: Path, here: Path, path: str) -> Iterator[str]:
    """Yield one file's change in the format of ``diff -u``, from the shipped version to ``here``."""
    old, new = _content(shipped / path), _content(here / path)
    try:
        before, after = ((each or b"").decode().splitlines(keepends=True) for each in (old, new))
    except UnicodeDecodeError:
        yield f"Binary files a/{path} and b/{path} differ\n"
        return
    names = (f"a/{path}" if old is not None else os.devnull, f"b/{path}" if new is not None else os.devnull)
    for line in difflib.unified_diff(before, after, *names):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _content(path: Path) -> bytes | None:
    """Return the content of a file or the target of a link; None if it does not exist."""
    if path.is_symlink():
        return os.fsencode(path.readlink())
    return path.read_bytes() if path.is_file() else None
