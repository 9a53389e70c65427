"""Locks between processes, by ``flock(2)``: the operating system releases those of a process that died.

The usual library loads asyncio and ssl on import, which is a tenth of the time of a short command.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from infra.drive import clock

_BEAT: Final = 0.05
_TEXT: Final = 1000
"""Maximum bytes read of the description of a lock's holder."""
_held: set[Path] = set()


class Taken(Exception):  # noqa: N818 - a state of the world, which callers put into words
    """Another process holds the lock, and did not release it before the timeout.

    Its text says who and since when: ``ada@desk, process 4711, since 2026-11-22 09:30:12 UTC``; empty if the
    holder has not written it yet.
    """


@contextmanager
def held(path: Path, *, timeout: float = 0, mode: int = 0o644, nested: bool = False) -> Iterator[None]:
    """Hold the lock at ``path``, excluding other processes and other parts of this one.

    Raises ``Taken`` after ``timeout`` seconds. ``nested``: allow locking it again if this process holds it
    already.
    """
    path = path.absolute()
    if nested and path in _held:
        yield
        return
    file = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        _take(file, time.monotonic() + timeout)
        os.ftruncate(file, 0)
        os.pwrite(file, _holder().encode(), 0)
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)
    finally:
        os.close(file)  # which releases it


def _holder() -> str:
    """A description of this process, for `Taken`."""
    since = clock.now().strftime("%Y-%m-%d %H:%M:%S UTC")
    user = os.environ.get("USER") or f"user {os.getuid()}"
    return f"{user}@{os.uname().nodename}, process {os.getpid()}, since {since}\n"


def _take(file: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Taken(os.pread(file, _TEXT, 0).decode(errors="replace").strip()) from None
            time.sleep(_BEAT)
        else:
            return
