"""Runs a run of this machine in a separate process that outlives its parent: a trial of a search, a notebook.

``python -m causeway.local_process FOLDER``. On SIGTERM it stops the run, which may be resumed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from causeway.errors import CausewayError
from causeway.local import find_here, run_here
from causeway.workers import workers_of

PID = "pid"
"""File in the run's folder: the process id."""


def launch(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process of a run that was submitted."""
    with (folder / "output.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def main(folder: Path) -> int:
    """Run it; return the exit code."""
    _, job = find_here(folder.name, folder.parent)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # outside of it, the run handles the signal
    (folder / PID).write_text(str(os.getpid()), encoding="ascii")
    try:
        ended = run_here(job, workers_of(job), folder, lambda _, line: print(line, flush=True))
    except CausewayError as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if ended.state == "done" else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
