"""The limit of what is shipped, and what makes a tree too large."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from causeway.code.tree import IGNORE_FILE, Entry
from causeway.errors import Problem
from causeway.units import format_size

DEFAULT_LIMIT = 256 << 20
"""Bytes before compression, where no cluster says otherwise."""
_SHOWN = 10
_MOST = 0.8
"""A folder stands for what is in it unless one entry holds more than this share of it."""


def check_limit(where: str, entries: Iterable[Entry], limit: int) -> list[Problem]:
    """One problem that names the ten largest paths, or none."""
    entries = list(entries)
    total = sum(entry.size for entry in entries)
    if total <= limit:
        return []
    rows = [f"  {format_size(size):>9}  echo '/{path}' >> {IGNORE_FILE}" for path, size in largest(entries)]
    what = f"{format_size(total)} in {len(entries)} files, more than {format_size(limit)}"
    return [Problem(where, "code", what, "leave out what is not code:\n" + "\n".join(rows))]


def largest(entries: Iterable[Entry], count: int = _SHOWN) -> list[tuple[str, int]]:
    """The largest paths, of folders and files: a folder ends with ``/``."""
    sizes: defaultdict[str, int] = defaultdict(int)
    children: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        parent = ""
        for part in entry.path.split("/")[:-1]:
            child = f"{parent}{part}/"
            children[parent].add(child)
            sizes[child] += entry.size
            parent = child
        children[parent].add(entry.path)
        sizes[entry.path] += entry.size

    def narrowed(path: str) -> str:
        while path.endswith("/"):
            heaviest = max(children[path], key=lambda child: sizes[child])
            if sizes[heaviest] < _MOST * sizes[path]:
                break
            path = heaviest
        return path

    found = {narrowed(path) for path in children[""]}
    return sorted(((path, sizes[path]) for path in found), key=lambda row: (-row[1], row[0]))[:count]
