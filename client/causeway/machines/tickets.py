"""Who waits for GPUs of this machine: one file each beside the leases, locked while its worker's process
lives.

All machines sort by the same key: priority, submission time of the run, its name. So of two runs the same one
goes first on each machine that both want, and neither waits for the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from causeway.machines import leases

_LONGEST = 4096


class Ticket:
    """A worker's place in the queue."""

    def __init__(self, holder: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """``holder``: ``user``, ``run``, ``worker``, ``priority``, ``since``. ``wanted``: ``count``,
        ``model``, ``memory``."""
        self.said = {**holder, **{name: wanted.get(name) for name in ("count", "model", "memory")}}
        self._path = _folder() / f"{os.getuid()}-{uuid.uuid4().hex}"
        self._file = -1

    def draw(self) -> None:
        """Enter the queue, at its former place if it had one."""
        if self._file >= 0 or not self.said["count"]:
            return
        _clear()
        # Under another name until it is locked: a ticket that is not locked does not count.
        part = self._path.with_name(f".{self._path.name}")
        self._file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.fchmod(self._file, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, json.dumps(self.said).encode())
        part.rename(self._path)

    def drop(self) -> None:
        """Leave the queue."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            self._file = -1

    def keep(self) -> None:
        """Update its access time, so that cleaners of temporary files leave it alone."""
        if self._file >= 0:
            os.utime(self._file)

    def ahead(self) -> list[dict[str, Any]]:
        """Return the tickets that go first, in order."""
        return [each for each in queue() if _order(each) < _order(self.said)]


def queue() -> list[dict[str, Any]]:
    """Return all tickets on this machine, in order."""
    found = [said for path in _folder().iterdir() if (said := _read(path))]
    return sorted(found, key=_order)


def place(ahead: Sequence[Mapping[str, Any]], run: str) -> tuple[int, str]:
    """Return the position, from 1, and the ticket just ahead: ``ada (resnet-1, since 2026-11-27 14:05)``."""
    others = {(each["user"], each["run"]): each for each in ahead if each["run"] != run}
    last = [*others.values()][-1:]
    who = "".join(f"{each['user']} ({each['run']}, since {leases.clock(each['since'])})" for each in last)
    return len(others) + 1, who


def _order(said: Mapping[str, Any]) -> tuple[float, float, str, str]:
    return -said["priority"], said["since"], said["run"], said["worker"]


def _folder() -> Path:
    return leases.everybodys(leases.folder() / "queue")


def _read(path: Path) -> dict[str, Any]:
    """Read a ticket; empty for one that is not locked, and for other files."""
    if path.name.startswith("."):
        return {}
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        if not leases.is_held(file):
            return {}
        said = dict(json.loads(os.read(file, _LONGEST)))
        numbers = {"priority": 0.0, "since": 0.0, "count": 0}
        said.update({name: type(zero)(said[name]) for name, zero in numbers.items()})
        return {**said, **{name: str(said[name]) for name in ("user", "run", "worker")}}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    finally:
        os.close(file)


def _clear() -> None:
    """Remove this user's tickets that are no longer locked."""
    for path in _folder().glob(f"{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            try:
                if not leases.is_held(file):
                    path.unlink()
            finally:
                os.close(file)
