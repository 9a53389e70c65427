"""Run a command and write what it took to a file: ``python -I -S once.py FILE COMMAND…``.

A process of its own, and a small one: on Linux the memory that a child has held at most counts from its
parent's on.
"""

import os
import sys
import time


def main() -> None:
    """Seconds, CPU seconds, KiB and the exit code, with spaces between."""
    file, *command = sys.argv[1:]
    start = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    with open(file, "w") as out:  # noqa: PTH123 - pathlib would double this process
        out.write(f"{seconds} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss} {code}")


if __name__ == "__main__":
    main()
