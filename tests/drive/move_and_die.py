"""Move a state in a process of its own that is killed after a given number of steps.

``python move_and_die.py BUILD SOURCE DESTINATION STEPS``; a place is ``local`` or ``BUCKET/KEY``.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from infra.drive.build_folders import Folders
from infra.drive.state_backends import LocalPlace, Place, S3Place
from infra.drive.state_move import move


def main() -> None:
    build, source, destination, steps = sys.argv[1:]
    folders, left = Folders(Path(build)), int(steps)

    def place(name: str) -> Place:
        if name == "local":
            return LocalPlace(folders)
        bucket, key = name.split("/", 1)
        return S3Place(os.environ, bucket, key, "us-west-2")

    def step(name: str) -> None:
        nonlocal left
        print(name, flush=True)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    move(place(source), place(destination), folders, step=step)


if __name__ == "__main__":
    main()
