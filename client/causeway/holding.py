"""The process that holds a run of this machine: who it is, and whether it is that one still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_HOLDER = "process.json"
"""Of a run's folder: ``pid`` and ``begun`` of the process that runs it, the first one, and of its workers."""


def note_holder(folder: Path, workers: Sequence[int] = ()) -> None:
    """Writes down this process and those of its workers."""
    found = [{"pid": pid, "begun": begun_of(pid)} for pid in (os.getpid(), *workers)]
    new = folder / f"{_HOLDER}.new"
    new.write_text(json.dumps(found) + "\n", encoding="utf-8")
    new.replace(folder / _HOLDER)


def ask_to_end(folder: Path) -> bool:
    """SIGTERM to the process that holds a run; where it was killed, to those that it left. False if there is
    none of them any more."""
    holder, *workers = _alive(folder) or [None]
    asked = [holder] if holder is not None else workers
    for pid in filter(None, asked):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    return any(asked)


def _alive(folder: Path) -> list[int | None]:
    """What was written down, in that order; None for one that is gone, or whose number another has now."""
    try:
        found = json.loads((folder / _HOLDER).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # of an older version
        return []
    return [
        each["pid"] if each["begun"] and begun_of(each["pid"]) == each["begun"] else None for each in found
    ]


def begun_of(pid: int) -> str:
    """When a process began, in words that no other process of that number shares; empty if there is none.

    On Linux ticks since the machine started (proc_pid_stat(5), field 22), else what ps(1) says.
    """
    if Path("/proc/self/stat").exists():
        try:
            # The name of the program, in parentheses, may have anything in it.
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
