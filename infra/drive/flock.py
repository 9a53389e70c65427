"""Locks between processes, by ``flock(2)``: the operating system frees those of a process that died.

The usual library loads asyncio and ssl on import, which is a tenth of what a short command may take.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_BEAT: Final = 0.05
_held: set[Path] = set()


class Taken(Exception):  # noqa: N818 - a state of the world, which callers put into words
    """Somebody else holds the lock, and did until the time was up."""


@contextmanager
def held(path: Path, *, timeout: float = 0, mode: int = 0o644, nested: bool = False) -> Iterator[None]:
    """Nobody else holds the lock at ``path`` meanwhile, be it another process or another part of this one.

    ``Taken`` after ``timeout`` seconds. ``nested``: what this process holds already it may hold once more.
    """
    path = path.absolute()
    if nested and path in _held:
        yield
        return
    file = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        _take(file, time.monotonic() + timeout)
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)
    finally:
        os.close(file)  # which frees it


def _take(file: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Taken from None
            time.sleep(_BEAT)
        else:
            return
