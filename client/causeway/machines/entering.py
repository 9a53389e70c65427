"""Opens a terminal or runs a command beside a worker, with its environment and GPUs: what ssh runs for
``shell``.

``python3 <run>/kit enter <run> <worker> --shell`` or ``--exec COMMAND…``, as for ``runtime.py``. It ends with
the worker, since its GPUs may then be leased to another user.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from causeway.machines.worker import boot, start_folder

_PAUSE = 1.0
_OWN = ("TERM", "SSH_AUTH_SOCK", "SSH_TTY")
"""Variables that keep the login's values."""


def main(run: Path, worker: str, words: list[str]) -> int:
    """Run it; return the exit code: that of the shell or command, 75 if the worker ended first, 1 if it is
    not running."""
    record, folder, pid, given = {"image": ""}, run, 0, {"": ""}
    try:
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
        folder = start_folder(run, record["start"]) / worker
        said = json.loads((folder / "worker.json").read_text(encoding="utf-8"))
        pid = int(said["pid"]) if said["phase"] == "running" and said["boot"] == boot() else 0
        given = _environment(pid)
    except (OSError, KeyError, ValueError):
        pass
    if given.get("CAUSEWAY_OUTPUT") != str(folder):
        print(f"causeway: {worker} of {run.name} is not running here", file=sys.stderr)
        return 1
    command = [sys.executable, str(run / "runtime.py"), *words]
    if record["image"]:
        terminal = ["--tty"] if sys.stdin.isatty() else []
        name = f"causeway-{run.name}-{worker}"
        command = ["podman", "exec", "--interactive", *terminal, name, "python3", *command[1:]]
        environment = dict(os.environ)
    else:
        environment = {**given, **{name: os.environ[name] for name in _OWN if name in os.environ}}
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the program at the terminal
    process = subprocess.Popen(command, env=environment)
    while True:
        try:
            code = process.wait(_PAUSE)
        except subprocess.TimeoutExpired:
            if Path(f"/proc/{pid}").exists():
                continue
            print(f"\r\ncauseway: {worker} of {run.name} has ended", file=sys.stderr)
            process.terminate()  # Closing the terminal ends what runs in it.
            return 75
        return code if code >= 0 else 128 - code


def _environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process (proc(5), ``environ``). Raises OSError."""
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape")
    return {name: value for name, _, value in (each.partition("=") for each in text.split("\0") if each)}
