"""Stores growing files in a storage that cannot append: in segments, of which the last one is sent again.

A file ``train/events.1`` is stored as the objects ``train/events.1/000000``, ``train/events.1/000001``, …, of
``SIZE`` bytes each except the last. Segments after one that is shorter are left over from an earlier file of
that name, and are not read.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from causeway.storage import MissingError, Storage

SIZE = 256 << 10
"""Bytes of a segment. A versioned bucket keeps each version of the last segment for a while."""
LARGEST = 1 << 30
"""Maximum size of a file in bytes; the rest is not stored."""
_BUDGET = 64 << 20
"""Maximum number of bytes sent in one call, except for the last."""
_SEAM = 4096
"""Bytes before the end of what was sent: if they have changed, the file was rewritten."""


@dataclass(frozen=True)
class _Sent:
    inode: int
    size: int
    modified: int
    """In nanoseconds since the epoch; -1 until everything is sent."""
    seam: bytes


class Sender:
    """Sends files to a storage as they grow."""

    def __init__(self, storage: Storage, *, budget: int = _BUDGET) -> None:
        self._storage = storage
        self._budget = budget
        self._sent: dict[str, _Sent] = {}
        self._turn: dict[str, int] = {}
        """Key → the call in which it was last sent. Keys that have waited longest are sent first."""
        self._calls = 0

    def send(self, files: Mapping[str, Path], *, last: bool = False) -> None:
        """Send what is new. ``files``: key → file. ``last``: send everything, however much.

        A file that cannot be read or sent does not affect the others; the first error is raised at the end.
        """
        self._calls += 1
        left = self._budget
        problems = []
        for key in sorted(files, key=lambda key: self._turn.get(key, 0)):
            if left <= 0 and not last:
                break
            try:
                left -= self._send(key, files[key], None if last else left)
            except FileNotFoundError:
                continue
            except Exception as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    def _send(self, key: str, path: Path, most: int | None) -> int:
        """Send a file; return the number of bytes sent."""
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            size = min(about.st_size, LARGEST)
            sent = self._sent.get(key)
            if sent is not None and _is_sent(about, sent, size):
                return 0
            self._turn[key] = self._calls
            at = sent.size // SIZE if sent is not None and _has_grown(file.fileno(), about, sent, size) else 0
            done = 0
            while True:
                data = os.pread(file.fileno(), min(SIZE, size - at * SIZE), at * SIZE)
                self._storage.write(_segment(key, at), data)
                done += len(data)
                end = at * SIZE + len(data)
                whole = end >= size or len(data) < SIZE
                seam = os.pread(file.fileno(), min(_SEAM, end), max(end - _SEAM, 0))
                self._sent[key] = _Sent(about.st_ino, end, about.st_mtime_ns if whole else -1, seam)
                at += 1
                if whole or (most is not None and done >= most):
                    break
        if sent is not None and whole and end < sent.size:
            self._storage.remove([_segment(key, each) for each in range(at, -(-sent.size // SIZE))])
        return done


def _is_sent(about: os.stat_result, sent: _Sent, size: int) -> bool:
    if (about.st_ino, size) != (sent.inode, sent.size):
        return False
    return about.st_mtime_ns == sent.modified or size == LARGEST


def _has_grown(file: int, about: os.stat_result, sent: _Sent, size: int) -> bool:
    """Whether what was sent is a prefix of the current file."""
    if about.st_ino != sent.inode or size < sent.size or (size == sent.size and sent.modified != -1):
        return False
    return os.pread(file, len(sent.seam), sent.size - len(sent.seam)) == sent.seam


def files_in(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative name, file) of all files; links are left out."""
    for folder, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(folder, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISREG(mode):
                yield path.relative_to(root).as_posix(), path


def sizes_of(objects: Mapping[str, int]) -> dict[str, list[int]]:
    """Return file → the sizes of its segments, from the keys and sizes of objects."""
    segments: dict[str, dict[int, int]] = {}
    for key, size in objects.items():
        name, _, number = key.rpartition("/")
        if name and number.isdigit():
            segments.setdefault(name, {})[int(number)] = size
    return {name: _contiguous(each) for name, each in segments.items() if 0 in each}


def _contiguous(segments: Mapping[int, int]) -> list[int]:
    found: list[int] = []
    while len(found) in segments:
        found.append(segments[len(found)])
        if found[-1] < SIZE:
            break
    return found


def read(storage: Storage, name: str, sizes: Sequence[int], *, most: int) -> bytes:
    """Return the last ``most`` bytes of a file, extended to the beginning of a segment."""
    first = max(len(sizes) - max(most // SIZE, 1), 0)
    return b"".join(storage.read(_segment(name, at)) for at in range(first, len(sizes)))


class Copy:
    """A local copy of files in a storage that follows them.

    It compares the sizes of segments: a rewritten file is fetched again only if it has become shorter.
    """

    def __init__(self, storage: Storage, prefix: str, folder: Path) -> None:
        """``prefix``: of keys; ends with a slash."""
        self.storage = storage
        self._prefix = prefix
        self._folder = folder
        self._have: dict[str, list[int]] = {}

    def follow(self, place: Mapping[str, str] | None = None) -> int:
        """Fetch what is new; return the number of changed files. ``place``: first folder of a name → the
        folder that replaces it."""
        found = sizes_of(self.storage.sizes(self._prefix))
        changed = [name for name, sizes in found.items() if self._have.get(name) != sizes]
        with ThreadPoolExecutor(8) as pool:
            # A list, so that exceptions are raised.
            list(pool.map(lambda name: self._fetch(name, found[name], place or {}), changed))
        return len(changed)

    def _fetch(self, name: str, sizes: list[int], place: Mapping[str, str]) -> None:
        parts = PurePosixPath(name.removeprefix(self._prefix)).parts
        if not parts or ".." in parts:
            return  # would be outside of the folder
        path = self._folder.joinpath(place.get(parts[0], parts[0]), *parts[1:])
        path.parent.mkdir(parents=True, exist_ok=True)
        before = self._have.get(name, [])
        # All local segments, except for an incomplete last one, are unchanged.
        grown = sum(sizes) >= sum(before) and sizes[: len(before) - 1] == before[:-1]
        first = max(len(before) - 1, 0) if grown else 0
        # Under a name that TensorBoard ignores.
        target = path if grown and before else path.with_name(f".{zlib.crc32(path.name.encode()):08x}.new")
        try:
            with target.open("r+b" if target == path else "wb") as file:
                for at in range(first, len(sizes)):
                    file.seek(at * SIZE)
                    file.write(self.storage.read(_segment(name, at)))
                    file.flush()
        except MissingError:
            return  # removed meanwhile
        if target != path:
            target.replace(path)
        self._have[name] = sizes


def _segment(key: str, at: int) -> str:
    return f"{key}/{at:06d}"
