"""``python supervisor.py LOG LOCK COMMAND…``: run Packer, and stop it on a signal or once its caller is gone.

What it says goes to the file LOG, so that nobody's end can break a pipe under a program that is cleaning up.
The file LOCK is locked (flock(2)) for as long as it lives: who sees it free knows that it is gone.

Packer runs itself once more and starts a process a plugin; the first of them ignores a SIGINT, as it
expects the terminal to tell them all. So all of this process group are told. That happens once: a second
SIGINT makes Packer give up. Should this process be killed, Packer gets a SIGTERM, where the system can do
that (Linux, PR_SET_PDEATHSIG, prctl(2)). Run as a script: it must be quick to start.
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
    if told:  # before there was anybody to tell
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
    """In Packer's process: signals that a shell's background job ignores mean something again."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


if __name__ == "__main__":
    raise SystemExit(main())
