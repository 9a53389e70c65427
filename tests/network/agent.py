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
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
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


def stream(request: dict[str, Any]) -> dict[str, Any]:
    """Starts a process that `feed` and `take` talk to."""
    process = subprocess.Popen(
        within(request.get("node"), request["command"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        start_new_session=True,
    )
    _processes[process.pid] = process
    return {"pid": process.pid}


def feed(request: dict[str, Any]) -> dict[str, Any]:
    """Bytes for a stream's standard input; none closes it."""
    pipe = _processes[request["pid"]].stdin
    assert pipe is not None
    data = base64.b64decode(request["data"])
    if not data:
        pipe.close()
    while data:
        data = data[os.write(pipe.fileno(), data) :]
    return {}


def take(request: dict[str, Any]) -> dict[str, Any]:
    """What a stream's standard output has next; nothing at its end, or after `timeout` seconds: `late`."""
    pipe = _processes[request["pid"]].stdout
    assert pipe is not None
    if not select.select([pipe], [], [], request["timeout"])[0]:
        return {"data": "", "late": True}
    return {"data": base64.b64encode(os.read(pipe.fileno(), 1 << 16)).decode(), "late": False}


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


def routes(request: dict[str, Any]) -> dict[str, Any]:
    """A node's main table, as proc(5) tells it: asked often too, of all nodes at once."""
    return {"text": Path(f"/proc/{request['node']}/net/route").read_text()}


_REQUEST, _REGISTER, _EVENT = 0, 3, 7
"""Kinds of packets of VICI."""


def vici(request: dict[str, Any]) -> dict[str, Any]:
    """The events that a command of charon streams. swanctl(8) prints the same, and takes a second of a busy
    VM's processor to start.

    Source: strongSwan, src/libcharon/plugins/vici/README.md: a length, a kind, a name where the kind has one.
    """
    event = request["event"].encode()
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(request["timeout"])
        line.connect(f"/proc/{request['node']}/root/run/charon.vici")
        found = []
        with line.makefile("rwb") as stream:
            for kind, name in ((_REGISTER, event), (_REQUEST, request["command"].encode())):
                stream.write(struct.pack("!IBB", len(name) + 2, kind, len(name)) + name)
                stream.flush()
                while (packet := stream.read(*struct.unpack("!I", stream.read(4))))[0] == _EVENT:
                    found.append(base64.b64encode(packet[2 + len(event) :]).decode())
    return {"events": found}


def vty(request: dict[str, Any]) -> dict[str, Any]:
    """What a daemon of FRR answers a command: over the socket that vtysh(1) uses, which starts as slowly.

    Source: FRR, vtysh/vtysh.c: a command ends with a zero byte, an answer with three and a code.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(request["timeout"])
        line.connect(f"/proc/{request['node']}/root/run/frr/{request['daemon']}.vty")
        for command in ("enable", request["command"]):
            line.sendall(command.encode() + b"\0")
            told = b""
            while told[-4:-1] != b"\0\0\0":
                if not (more := line.recv(1 << 16)):
                    return {"fault": f"{request['daemon']} closed the connection: {told!r}"}
                told += more
    return {"text": told[:-4].decode(), "code": told[-1]}


def poll(request: dict[str, Any]) -> dict[str, Any]:
    return {"code": _processes[request["pid"]].poll()}


def kill(request: dict[str, Any]) -> dict[str, Any]:
    """Signals a process's whole group. `code` is null where any of it still runs after `timeout` seconds."""
    process = _processes[request["pid"]]
    grouped = _signal(process, request["signal"])
    deadline = time.monotonic() + request["timeout"]
    try:
        code = process.wait(request["timeout"])
    except subprocess.TimeoutExpired:
        return {"code": None}
    # nsenter may go first: a daemon that takes its leave still has its port.
    while grouped and _left(process.pid):
        if time.monotonic() > deadline:
            return {"code": None}
        time.sleep(0.01)
    return {"code": code}


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether it was a group that got it: nsenter waits for the process it made and passes no signals on."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None and os.getpgid(process.pid) != process.pid:
            process.send_signal(number)
            return False
        os.killpg(process.pid, number)
    return True


def _left(group: int) -> bool:
    """Whether any of the group still runs; who ended may wait for a parent that never asks."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, member, *_ = entry.read_text().rpartition(")")[2].split()
            if int(member) == group and state != "Z":
                return True
    return False


OPERATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "run": run,
    "start": start,
    "stream": stream,
    "feed": feed,
    "take": take,
    "node": node,
    "log": log,
    "exists": exists,
    "routes": routes,
    "vici": vici,
    "vty": vty,
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
    # A line may have megabytes, of which a port gives a few KiB at once.
    with os.fdopen(line, "rb", 1 << 16, closefd=False) as requests:
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
