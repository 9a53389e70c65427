"""``python dying.py LOG LOCK COMMAND…``: become COMMAND, in such a way that it does not outlive its caller.

What it says goes to the file LOG, so that nobody's end can break a pipe under a program that is cleaning up.
The file LOCK is locked (flock(2)) for as long as the program lives: who sees it free knows that it is gone.
Where the system can (Linux, PR_SET_PDEATHSIG, prctl(2)) the program gets a SIGINT when its caller dies,
however that happens: Packer then takes back what it made. Run as a script: it must be quick to start.
"""

import ctypes
import fcntl
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    log, lock, *command = sys.argv[1:]
    parent = os.getppid()
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.set_inheritable(held, True)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be told
            raise SystemExit(130)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # The caller takes the end of these for the program's end: somebody has to hold them.
    os.set_inheritable(os.dup(1), True)
    os.set_inheritable(os.dup(2), True)
    os.dup2(out, 1)
    os.dup2(out, 2)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606, this is what it is for


if __name__ == "__main__":
    main()
