"""Rendered files: ``{path: text}``, with relative paths and forward slashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Files: TypeAlias = Mapping[str, str]


def merge(parts: Iterable[Files]) -> dict[str, str]:
    """All files of ``parts`` in one mapping, sorted by path.

    Raises ``ValueError`` if two renderers write the same path, which is a bug.
    """
    merged: dict[str, str] = {}
    for part in parts:
        for path, text in part.items():
            if path in merged:
                raise ValueError(f"two renderers write {path}")
            merged[path] = text
    return dict(sorted(merged.items()))


def under(folder: str, files: Files) -> dict[str, str]:
    """The same files below a folder."""
    return {f"{folder}/{path}": text for path, text in files.items()}
