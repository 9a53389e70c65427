"""Runs in the lab's machine and does there what the tests ask for. Standard library only.

The host sends one JSON object a line and gets one back with the same `id`, in whatever order work ends: each
request
has its own thread, so a ping goes on while something else is killed. Bytes travel as base64.

    {"id": 1, "op": "run", "command": ["ip", "link"], "node": 123, "stdin": "", "timeout": 10}
    {"id": 1, "code": 0, "stdout": "…", "stderr": "…", "late": false}

`node` is the process id of a namespace's first process; without it a command runs outside of all nodes. When
the
connection ends, so does the agent, and with it the machine.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOGS = Path("/run/lab/logs")

_processes: dict[int, subprocess.Popen[bytes]] = {}
_sending = threading.Lock()


def within(node: int | None, command: list[str]) -> list[str]:
    """The command, as it is run in a node's namespaces."""
    if node is None:
        return command
    return ["nsenter", f"--target={node}", "--mount", "--net", "--uts", "--ipc", "--pid", "--", *command]


def run(request: dict[str, Any]) -> dict[str, Any]:
    process = subprocess.Popen(
        within(request.get("node"), request["command"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    late = False
    try:
        stdout, stderr = process.communicate(base64.b64decode(request["stdin"]), request["timeout"])
    except subprocess.TimeoutExpired:
        late = True
        _signal(process, signal.SIGKILL)
        stdout, stderr = process.communicate()
    return {
        "code": process.returncode,
        "stdout": base64.b64encode(stdout).decode(),
        "stderr": base64.b64encode(stderr).decode(),
        "late": late,
    }


def start(request: dict[str, Any]) -> dict[str, Any]:
    log = LOGS / request["log"]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            within(request.get("node"), request["command"]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
        )
    _processes[process.pid] = process
    return {"pid": process.pid}


def node(request: dict[str, Any]) -> dict[str, Any]:
    """Starts the first process of a node, which tells its process id once its file tree is ready."""
    process = subprocess.Popen(
        request["command"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
    )
    assert process.stdout is not None
    told = b""
    for line in process.stdout:
        told += line
        if line.startswith(b"ready "):
            _processes[process.pid] = process
            return {"pid": process.pid, "node": int(line.split()[1])}
    return {"fault": told.decode(errors="replace") or f"ended with {process.wait()}"}


def log(request: dict[str, Any]) -> dict[str, Any]:
    path = LOGS / request["log"]
    return {"text": path.read_text(errors="replace") if path.exists() else ""}


def exists(request: dict[str, Any]) -> dict[str, Any]:
    """Whether a node has a path: asked often while daemons start, so no process is started for it."""
    return {"exists": Path(f"/proc/{request['node']}/root{request['path']}").exists()}


def poll(request: dict[str, Any]) -> dict[str, Any]:
    return {"code": _processes[request["pid"]].poll()}


def kill(request: dict[str, Any]) -> dict[str, Any]:
    """Signals a process's whole group. `code` is null where it still runs after `timeout` seconds."""
    process = _processes[request["pid"]]
    _signal(process, request["signal"])
    try:
        return {"code": process.wait(request["timeout"])}
    except subprocess.TimeoutExpired:
        return {"code": None}


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # The group: nsenter waits for the process it made and does not pass signals on.
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


OPERATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "run": run,
    "start": start,
    "node": node,
    "log": log,
    "exists": exists,
    "poll": poll,
    "kill": kill,
}


def _answer(line: int, request: dict[str, Any]) -> None:
    try:
        reply = OPERATIONS[request["op"]](request)
    except Exception as fault:  # whatever it is, the one who asked has to hear of it
        reply = {"fault": f"{type(fault).__name__}: {fault}"}
    _send(line, {"id": request["id"], **reply})


def _send(line: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    with _sending:
        while data:
            data = data[os.write(line, data) :]


def serve(line: int) -> None:
    """Answers until the other side is gone.

    Args:
        line: A file descriptor, open for both directions.
    """
    _send(line, {"id": 0, "kernel": os.uname().release})
    waiting = b""
    while chunk := os.read(line, 1 << 16):
        *requests, waiting = (waiting + chunk).split(b"\n")
        for request in requests:
            threading.Thread(target=_answer, args=(line, json.loads(request)), daemon=True).start()


def port(name: str) -> int:
    """The virtio-serial port of this name, opened. There is no udev here that would make
    /dev/virtio-ports."""
    for entry in Path("/sys/class/virtio-ports").iterdir():
        if (entry / "name").read_text().strip() == name:
            return os.open(f"/dev/{entry.name}", os.O_RDWR)
    raise SystemExit(f"no virtio-serial port named {name}")


if __name__ == "__main__":
    serve(int(sys.argv[1]) if sys.argv[1].isdecimal() else port(sys.argv[1]))
