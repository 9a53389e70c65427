"""A terminal of this machine, with somebody at it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios

PATIENCE = 600
"""Seconds, as for a run on emulated processors of a busy machine."""


class Terminal:
    """A terminal, and a person at it."""

    def __init__(self) -> None:
        self._ours, self.side = pty.openpty()
        self._seen = ""

    def close(self) -> None:
        os.close(self._ours)
        os.close(self.side)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def enter(self, line: str) -> None:
        """At a prompt: what is typed while bash takes the terminal back from a program may end bash."""
        self.shows("$ ")
        self.type(f"{line}\n")

    def shows(self, text: str) -> None:
        """Waits until it does, after what it has shown before."""
        while text not in self._seen:
            assert select.select([self._ours], [], [], PATIENCE)[0], f"no {text!r} in {self._seen!r}"
            self._seen += os.read(self._ours, 1 << 12).decode(errors="replace")
        self._seen = self._seen.partition(text)[2]
