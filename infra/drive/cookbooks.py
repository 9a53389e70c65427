"""Which files of ``cookbooks/`` are sent to machines: the same for images and for converges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LEFTOVERS: Final = ("~", ".orig", ".new", ".pyc")

_NOT_ON_A_MACHINE: Final = frozenset({"spec", "test", "kitchen", "__pycache__", "vendor", "README.md"})
"""Parts of a cookbook, and leftovers beside it, that chef-client does not read; hidden files are excluded
too."""


def below(folder: Path, prefix: str) -> dict[str, bytes]:
    """``<prefix>/<path below the folder>`` → contents, sorted. Files that are not used on machines are left
    out: changing them does not require a bake or a converge."""
    return {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in _files(folder)}


def mode_of(data: bytes) -> int:
    """The mode of a file on a machine: executable if it begins with ``#!``."""
    return 0o755 if data.startswith(b"#!") else 0o644


def _files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name in _NOT_ON_A_MACHINE or path.name.startswith(".") or path.name.endswith(_LEFTOVERS):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.is_file():
            yield path
