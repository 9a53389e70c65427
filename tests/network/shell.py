"""A node in the place of a machine that is reached by SSH, and lines from this machine into nodes."""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from network.machine import MachineFault
from network.node import Node

from infra.drive import ssh


@dataclass(frozen=True, slots=True)
class Shell(ssh.Machine):
    """Runs commands on `node`, as root."""

    node: Node

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 60, shown: str = "") -> str:
        result = self.node.run(*command, stdin=stdin, timeout=timeout)
        if not result.ok:
            raise ssh.RemoteError(f"{self.name}: {result}", result.code)
        return result.stdout


class Line:
    """A socket of this machine; who connects to it talks to a command of its own on a node, until `close`.

    `command`: a program of this machine that connects standard input and output to it.
    """

    def __init__(self, node: Node, *command: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="causeway-lab-"))  # pytest's are too long for a socket
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / "line"))
        self._listener.listen()
        self.command = ["socat", "-", f"UNIX-CONNECT:{self._folder / 'line'}"]
        self._thread = threading.Thread(target=self._serve, args=(node, list(command)), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes who waits for the next call
        self._thread.join()

    def _serve(self, node: Node, command: list[str]) -> None:
        with contextlib.suppress(OSError), self._listener:
            while True:
                line = self._listener.accept()[0]
                threading.Thread(target=_join, args=(line, node, command), daemon=True).start()
        shutil.rmtree(self._folder)


def _join(line: socket.socket, node: Node, command: list[str]) -> None:
    """Joins a connection with a command that is started for it."""
    machine = node.machine
    with line, contextlib.suppress(MachineFault):
        pid = machine.ask("stream", command=command, node=node.first)["pid"]
        back = threading.Thread(target=_back, args=(line, node, pid), daemon=True)
        back.start()
        with contextlib.suppress(OSError, MachineFault):
            while data := line.recv(1 << 16):
                machine.ask("feed", pid=pid, data=base64.b64encode(data).decode())
            machine.ask("feed", pid=pid, data="")
        with contextlib.suppress(MachineFault):
            machine.ask("kill", pid=pid, signal=signal.SIGKILL)
        back.join()


def _back(line: socket.socket, node: Node, pid: int) -> None:
    with contextlib.suppress(OSError, MachineFault):
        while True:
            told = node.machine.ask("take", pid=pid)
            if data := base64.b64decode(told["data"]):
                line.sendall(data)
            elif not told["late"]:
                break
        line.shutdown(socket.SHUT_WR)
