"""``python supervisor.py LOG LOCK COMMAND…``: run Packer, and stop it on a signal or if the caller dies.

Its output goes to the file LOG, so that it does not get SIGPIPE while it cleans up. The file LOCK is locked
(flock(2)) while it runs: if the lock is free, it has ended.

Packer runs itself again and starts a process per plugin; its first process ignores SIGINT, as it expects the
terminal to signal the whole process group. So all processes of this group get the signal, once: a second
SIGINT makes Packer abort. If this process is killed, Packer gets a SIGTERM, where the system supports it
(Linux, PR_SET_PDEATHSIG, prctl(2)). Run as a script: it must start quickly.
"""

import fcntl
import os
import signal
import subprocess
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_BEAT = 0.5


def main() -> int:
    log, lock, *command = sys.argv[1:]
    parent = os.getppid()
    told = False

    def stop(*_: Any) -> None:
        nonlocal told
        if not told:
            told = True
            os.killpg(os.getpgrp(), signal.SIGINT)

    signal.signal(signal.SIGINT, stop)
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    process = subprocess.Popen(command, stdout=out, stderr=out, pass_fds=(held,), preexec_fn=_heeding)
    if told:  # before the child was started
        process.send_signal(signal.SIGTERM)
    while True:
        try:
            code = process.wait(timeout=_BEAT)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                stop()
        else:
            return code if code >= 0 else 128 - code


def _heeding() -> None:
    """In Packer's process: restore signals that a shell ignores in background jobs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


if __name__ == "__main__":
    raise SystemExit(main())
