"""A node in the place of a machine that is reached by SSH."""

from __future__ import annotations

import base64
import contextlib
import signal
import socket
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from network.machine import MachineFault
from network.node import Node

from infra.drive import ssh


@dataclass(frozen=True, slots=True)
class Shell(ssh.Machine):
    """Runs commands on `node`, as root."""

    node: Node

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 60) -> str:
        result = self.node.run(*command, stdin=stdin, timeout=timeout)
        if not result.ok:
            raise ssh.RemoteError(f"{self.name}: {result}", result.code)
        return result.stdout

    def command(self, command: Sequence[str]) -> list[str]:
        """A command line of this machine whose input and output are those of the command on the node."""
        folder = tempfile.mkdtemp(prefix="causeway-lab-")
        path = Path(folder) / "line"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
        threading.Thread(target=self._serve, args=(listener, path, list(command)), daemon=True).start()
        return ["socat", "-", f"UNIX-CONNECT:{path}"]

    def _serve(self, listener: socket.socket, path: Path, command: list[str]) -> None:
        with listener:
            line = listener.accept()[0]
        path.unlink()
        path.parent.rmdir()
        machine = self.node.machine
        pid = machine.ask("stream", command=command, node=self.node.first)["pid"]
        back = threading.Thread(target=self._back, args=(line, pid), daemon=True)
        back.start()
        with contextlib.suppress(OSError, MachineFault):
            while data := line.recv(1 << 16):
                machine.ask("feed", pid=pid, data=base64.b64encode(data).decode())
            machine.ask("feed", pid=pid, data="")
        with contextlib.suppress(MachineFault):
            machine.ask("kill", pid=pid, signal=signal.SIGKILL)
        back.join()
        line.close()

    def _back(self, line: socket.socket, pid: int) -> None:
        with contextlib.suppress(OSError, MachineFault):
            while True:
                told = self.node.machine.ask("take", pid=pid)
                if data := base64.b64decode(told["data"]):
                    line.sendall(data)
                elif not told["late"]:
                    break
            line.shutdown(socket.SHUT_WR)
