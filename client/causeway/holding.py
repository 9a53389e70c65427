"""The process that holds a run of this machine, and whether it is still the same process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_HOLDER = "process.json"
"""File in a run's folder: ``pid`` and ``begun`` of the process that runs it (first) and of its workers."""


def note_holder(folder: Path, workers: Sequence[int] = ()) -> None:
    """Record this process and those of its workers."""
    found = [{"pid": pid, "begun": begun_of(pid)} for pid in (os.getpid(), *workers)]
    new = folder / f"{_HOLDER}.new"
    new.write_text(json.dumps(found) + "\n", encoding="utf-8")
    new.replace(folder / _HOLDER)


def ask_to_end(folder: Path) -> bool:
    """Send SIGTERM to the process that holds a run, or, if it was killed, to the processes that it left.
    False if none of them exists any more."""
    holder, *workers = _alive(folder) or [None]
    asked = [holder] if holder is not None else workers
    for pid in filter(None, asked):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    return any(asked)


def _alive(folder: Path) -> list[int | None]:
    """Return the recorded processes in order; None for each that has ended, or whose pid is now used by
    another process."""
    try:
        found = json.loads((folder / _HOLDER).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # of an older version
        return []
    return [
        each["pid"] if each["begun"] and begun_of(each["pid"]) == each["begun"] else None for each in found
    ]


def begun_of(pid: int) -> str:
    """Return a text that identifies the process among those that ever have this pid; empty if it does not
    exist.

    On Linux, its start time in ticks since boot (proc_pid_stat(5), field 22), elsewhere the start time from
    ps(1).
    """
    if Path("/proc/self/stat").exists():
        try:
            # The name of the program, in parentheses, may contain any character.
            fields = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            )
        except OSError:
            return ""
        state, begun = fields.split()[0], fields.split()[19]
        return "" if state in ("Z", "X") else begun
    said = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return said.stdout.strip()
