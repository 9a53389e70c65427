"""Commands in a running worker, connected to this terminal (Kubernetes API, ``pods/exec``, WebSocket)."""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from websocket import WebSocketException

from causeway.cluster.connection import Cluster
from causeway.errors import CausewayError, UnreachableError

_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE = range(5)
_PAUSE = 0.2
"""Seconds between two checks of the window's size and for output."""


def execute(cluster: Cluster, namespace: str, pod: str, command: Sequence[str], *, terminal: bool) -> int:
    """Run a command in the container ``main`` of a pod and return its exit code.

    ``terminal``: allocate a terminal, connected to ours. Raises UnreachableError if the connection breaks,
    CausewayError if the API refuses.
    """
    query = [
        ("container", "main"), ("stdin", "true"), ("stdout", "true"),
        ("stderr", "false" if terminal else "true"), ("tty", "true" if terminal else "false"),
        *(("command", word) for word in command),
    ]  # fmt: skip
    client = cluster.websocket(f"/api/v1/namespaces/{namespace}/pods/{pod}/exec", query)
    try:
        if terminal:
            with _raw():
                _converse(client, terminal=True)
        else:
            _converse(client, terminal=False)
        return _exit_code(client)
    except (WebSocketException, OSError) as error:
        raise UnreachableError(f"the connection broke: {error}") from None
    finally:
        client.close()


@contextmanager
def _raw() -> Iterator[None]:
    """Put our terminal into raw mode, and restore it afterwards."""
    before = termios.tcgetattr(sys.stdin)
    # Not the default, TCSAFLUSH: what was typed earlier is meant for the program as well.
    tty.setraw(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _converse(client: Any, *, terminal: bool) -> None:
    """Copy in both directions until the command has ended."""
    source = sys.stdin.fileno()
    reads = True
    size: os.terminal_size | None = None
    while client.is_open():
        # Not shutil's function, which uses $COLUMNS and $LINES: those do not change with a window.
        if terminal and (now := os.get_terminal_size(source)) != size:
            size = now
            client.write_channel(_RESIZE, json.dumps({"Width": size.columns, "Height": size.lines}))
        waits = [client.sock.sock, *([source] if reads else [])]
        # TLS may hold a frame that select() on the socket does not report.
        pending = getattr(client.sock.sock, "pending", lambda: 0)()
        ready = select.select(waits, [], [], 0 if pending else _PAUSE)[0]
        if source in ready:
            data = os.read(source, 1 << 16)
            if data:
                client.write_channel(_STDIN, data)
            else:
                reads = False
                client.close_channel(_STDIN)
        if pending or client.sock.sock in ready:
            client.update(timeout=0 if not pending else None)
        for channel, out in ((_STDOUT, sys.stdout), (_STDERR, sys.stderr)):
            if client._channels.get(channel):
                out.buffer.write(client.read_channel(channel))
                out.flush()


def _exit_code(client: Any) -> int:
    """Read the command's exit code (a ``Status`` of the API on a separate channel)."""
    try:
        status = json.loads(client.read_channel(_STATUS) or b"{}")
    except ValueError:
        status = {}
    if status.get("status") == "Success":
        return 0
    for cause in status.get("details", {}).get("causes", ()):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    if not status:
        raise UnreachableError("the connection broke")
    raise CausewayError(f"the command could not be run: {status.get('message', 'no reason was given')}")
