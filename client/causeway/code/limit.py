"""The size limit of shipped code, and suggestions what to leave out of a tree that is too large."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from causeway.code.tree import Entry, appending, ignoring
from causeway.errors import Problem
from causeway.units import format_size

DEFAULT_LIMIT = 256 << 20
"""In bytes before compression, unless the cluster sets another limit."""
_SHOWN = 10
_MOST = 0.8
"""A folder is listed as a whole unless one entry is more than this share of it, or it contains code."""
_CODE = (".py", ".ipynb", ".sh", ".yaml", ".yml", ".toml", ".cfg", ".txt", ".md", ".cu", ".cpp", ".h")
_ALIKE = 4
"""Number of files in one folder with the same suffix, not of code, from which they are shown as one
pattern."""


def check_limit(where: str, entries: Iterable[Entry], limit: int) -> list[Problem]:
    """Return a problem that names the largest items, if the limit is exceeded."""
    entries = list(entries)
    total = sum(entry.size for entry in entries)
    if total <= limit:
        return []
    found = largest(entries)
    # Small entries are not worth listing, and are usually code.
    large = [row for row in found if row[1] * 100 >= total] or found
    rows = [f"  {format_size(size):>9}  {_leaving_out(path)}" for path, size in large]
    what = f"{format_size(total)} in {len(entries)} files, more than {format_size(limit)}"
    return [Problem(where, "code", what, "leave out what is not code:\n" + "\n".join(rows))]


def _leaving_out(path: str) -> str:
    folder, _, pattern = path.rpartition("/")
    if not pattern.startswith("*."):
        return ignoring(path)
    return appending(f"/{folder}/{pattern}" if folder else f"/{pattern}")


def largest(entries: Iterable[Entry], count: int = _SHOWN) -> list[tuple[str, int]]:
    """Return the largest items: files, folders (``data/``), and similar files of one folder (``src/*.npz``).

    They do not cover code unless nothing else is large: a folder with code in it is listed by its parts.
    """
    sizes: defaultdict[str, int] = defaultdict(int)
    children: defaultdict[str, set[str]] = defaultdict(set)
    with_code = {""}
    for entry in entries:
        parent = ""
        for part in entry.path.split("/")[:-1]:
            child = f"{parent}{part}/"
            children[parent].add(child)
            sizes[child] += entry.size
            parent = child
        if _suffix(entry.path).lower() in _CODE:
            with_code.update(_folders(entry.path))
        children[parent].add(entry.path)
        sizes[entry.path] += entry.size

    def parts(folder: str) -> Iterable[tuple[str, int]]:
        """Return the items that a folder is shown as: its subfolders, in the same way, and its files."""
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for child in children[folder]:
            if not child.endswith("/"):
                alike[_suffix(child)].append(child)
            elif child in with_code or max(sizes[each] for each in children[child]) > _MOST * sizes[child]:
                yield from parts(child)
            else:
                yield child, sizes[child]
        for suffix, files in alike.items():
            total = sum(sizes[each] for each in files)
            if (
                len(files) >= _ALIKE
                and suffix
                and suffix.lower() not in _CODE
                and not _WILD & set(folder + suffix)
            ):
                yield f"{folder}*{suffix}", total
            else:
                yield from ((each, sizes[each]) for each in files)

    return sorted(parts(""), key=lambda row: (-row[1], row[0]))[:count]


_WILD = frozenset("*?[\\")


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix


def _folders(path: str) -> Iterable[str]:
    parts = path.split("/")[:-1]
    return ("/".join(parts[: at + 1]) + "/" for at in range(len(parts)))
