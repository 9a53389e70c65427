"""Rendered text on its way to disk: ``{path: text}``, paths relative and with forward slashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Files: TypeAlias = Mapping[str, str]


def merge(parts: Iterable[Files]) -> dict[str, str]:
    """All files of ``parts`` in one mapping, sorted by path.

    Two renderers that write the same path are a fault of ours: ``ValueError``.
    """
    merged: dict[str, str] = {}
    for part in parts:
        for path, text in part.items():
            if path in merged:
                raise ValueError(f"two renderers write {path}")
            merged[path] = text
    return dict(sorted(merged.items()))


def under(folder: str, files: Files) -> dict[str, str]:
    """The same files one folder further down."""
    return {f"{folder}/{path}": text for path, text in files.items()}
