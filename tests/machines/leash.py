"""``python leash.py PID LOG COMMAND…``: run COMMAND, no longer than the process PID lives.

A SIGTERM presses the power button: a line on the command's standard input. Ended otherwise, it takes the
command with it at once. Run as a script: it must be quick to start.
"""

import os
import select
import signal
import subprocess
import sys


def main() -> int:
    owner = os.pidfd_open(int(sys.argv[1]))
    with open(sys.argv[2], "ab") as log:  # noqa: PTH123 # pathlib takes as long to load as all else
        machine = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *sys.argv[3:]],
            stdin=subprocess.PIPE, stdout=log, stderr=log,
        )  # fmt: skip
    line = machine.stdin
    assert line is not None

    def press(*_: object) -> None:
        line.write(b"off\n")
        line.flush()

    signal.signal(signal.SIGTERM, press)
    ended = os.pidfd_open(machine.pid)
    ready, _, _ = select.select([owner, ended], [], [])
    if ended not in ready:
        machine.kill()
    return machine.wait()


if __name__ == "__main__":
    raise SystemExit(main())
