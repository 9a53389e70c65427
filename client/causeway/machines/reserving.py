"""Holds GPUs without a run for a time: ``causeway reserve`` starts it as a systemd unit.

``python3 kit reserve FOLDER``. It leases GPUs, under which runs of the same user take leases. At its end it
releases those without a run, and each other one when its run has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import Any

from causeway.errors import CausewayError
from causeway.machines import leases, tickets
from causeway.machines.leases import Leases

STATUS = "status.json"
_PAUSE = 1.0
_KEEPS = 3600
"""Seconds between two updates of access times, for cleaners of temporary files."""


def main(folder: Path) -> int:
    """Hold the GPUs; return the exit code, which is 1 if they are not free."""
    os.umask(0o077)
    asked = json.loads((folder / "reservation.json").read_text(encoding="utf-8"))
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    held = Leases()
    try:
        count = len(leases.gpus()) if asked["gpus"] is None else asked["gpus"]
        holder = {
            "user": leases.me(), "run": "reserved", "worker": "", "until": asked["until"], "reserved": True,
        }  # fmt: skip
        found = held.take(count, {}, holder, tickets.queue())
        problem = "" if found else "this machine has no GPUs"
    except CausewayError as error:
        problem = str(error)
    if problem:
        _write(folder, problem=problem)
        return 1
    _write(folder, gpus=[gpu.index for gpu in found])
    kept = time.monotonic()
    while not ended and time.time() < asked["until"]:
        time.sleep(_PAUSE)
        if time.monotonic() > kept + _KEEPS:
            held.keep()
            kept = time.monotonic()
    while found := held.let_go(found):
        time.sleep(_PAUSE)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _write(folder: Path, **values: Any) -> None:
    part = folder / "status.part"
    part.write_text(json.dumps({**values, "machine": socket.gethostname()}), encoding="utf-8")
    part.replace(folder / STATUS)
