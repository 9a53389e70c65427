"""Coordinates the workers of a run: the first worker's machine decides how the run ends, and tells the
others.

Each other worker keeps a connection to the first, over which it reports how it ended, and is asked to stop. A
connection that breaks counts as a lost machine. Messages are lines of JSON; the first line of a connection
contains the run's token.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import math
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from causeway.runtime import STOPPED

_LONGEST = 1 << 16
"""Maximum size of a message in bytes: a worker's status has 4 KB."""
CONNECT = 120
"""Seconds in which all workers have to connect."""
_IN_USE = 5
"""Seconds in which the run's port has to become free."""
_ANSWERS = 5
"""Seconds to wait for the first worker's clock; it reads its connections every 0.2 s."""


class Line:
    """A non-blocking connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._rest = b""
        self._come: deque[bytes] = deque()
        self.broken = False
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        # Unacknowledged data breaks the connection, too (tcp(7)).
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
        connection.setblocking(False)

    def send(self, **message: Any) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # or earlier bytes, which are few, were not read
            self.broken = True

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages received since the last call."""
        while not self.broken:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.broken = not data
            self._rest += data
            if len(self._rest) > _LONGEST:
                self.broken = True
        *lines, self._rest = self._rest.split(b"\n")
        self._come.extend(lines)
        while self._come:
            message = _parsed(self._come.popleft())
            if message is None:
                self.broken = True
                return
            yield message

    def comes(self, seconds: float) -> bool:
        """Wait for data; return whether it came in time."""
        return bool(select.select([self._socket], [], [], max(seconds, 0))[0])

    def close(self) -> None:
        self._socket.close()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Parse a message; None if it is not one of ours: the port is open to the network."""
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return None


class Follower:
    """A worker's connection to the first worker."""

    def __init__(self, worker: str, token: str, address: str) -> None:
        """``address``: ``host:port``. Raises OSError if nothing answers there."""
        host, _, port = address.rpartition(":")
        self._line = Line(_connected(host.strip("[]"), int(port)))
        self._stop = ""
        self._orders: deque[dict[str, Any]] = deque()
        self._line.send(worker=worker, token=token)

    def stop(self) -> str:
        """Return how the run ended, once it has: then this worker has to stop. ``lost`` if the first worker
        is gone."""
        self._read()
        return self._stop or ("lost" if self._line.broken else "")

    def order(self) -> dict[str, Any]:
        """Return the first worker's next order about this worker's GPUs (``waiting``); empty if there is
        none."""
        self._read()
        return self._orders.popleft() if self._orders else {}

    def say(self, **message: Any) -> None:
        self._line.send(**message)

    def _read(self) -> None:
        for message in self._line.messages():
            if "stop" in message:
                self._stop = message["stop"]
            else:
                self._orders.append(message)

    def ended(self, status: Mapping[str, Any]) -> None:
        """Report how this worker ended, with ``at`` converted to the first worker's clock."""
        self._line.send(clock=True)
        at = status.get("at", time.time()) + self._behind()
        self._line.send(ended={**status, "at": at})
        self._line.close()

    def _behind(self) -> float:
        """Return how far our clock is behind the first worker's, which sends its time. Measuring when a
        message is read would include its delay, which is longer than ranks take to fail after one another. 0
        if it does not answer."""
        until = time.monotonic() + _ANSWERS
        while not self._line.broken and self._line.comes(until - time.monotonic()):
            now = time.time()
            for message in self._line.messages():
                if "clock" in message:
                    return float(message["clock"]) - now
        return 0.0


def _connected(host: str, port: int) -> socket.socket:
    until = time.monotonic() + CONNECT
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            return socket.create_connection((host, port), timeout=10)
        time.sleep(0.5)
    return socket.create_connection((host, port), timeout=10)


def _listening(port: int) -> socket.socket:
    """Listen on a port. Raises OSError if another process uses it."""
    until = time.monotonic() + _IN_USE
    while True:
        try:
            return socket.create_server(("", port))
        except OSError as error:
            # An outgoing connection may use it briefly.
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        time.sleep(0.1)


class Leader:
    """The first worker's side: knows the state of all workers, and decides how the run ends."""

    def __init__(
        self, workers: Mapping[str, str], decides: Sequence[str], token: str, port: int, seconds: float
    ) -> None:
        """``workers``: name of each worker → its machine. ``decides``: the workers whose end completes the
        run. ``seconds``: the run's maximum duration."""
        self.state = ""
        """How the run ended: ``done``, ``failed``, ``stopped``, ``timed-out``."""
        self.reason = ""
        self.ended: dict[str, dict[str, Any]] = {}
        """How workers ended, with times by our clock."""
        self.ready: dict[str, bool] = {}
        """Worker → whether it could take its GPUs (``waiting``)."""
        self.taken: dict[str, tuple[int, bool]] = {}
        """Worker → the round in which it was asked to, and whether it did."""
        self._machines = workers
        self._decides = decides
        self._token = token
        self._lines: dict[str, Line] = {}
        self._new: list[Line] = []
        self._begun = time.monotonic()
        self._connect_until = self._begun + CONNECT
        self._seconds = seconds
        self._deadline = math.inf
        self._listener = _listening(port) if len(workers) > 1 else None
        if self._listener is not None:
            self._listener.setblocking(False)

    def begin(self) -> None:
        """Start the run's clock."""
        self._begun = time.monotonic()
        self._deadline = self._begun + self._seconds

    def tell(self, **message: Any) -> None:
        """Send to all other workers."""
        for line in self._lines.values():
            line.send(**message)

    def note(self, worker: str, status: Mapping[str, Any]) -> None:
        """Record that a worker has ended."""
        self.ended[worker] = {"at": time.time(), **status, "host": self._machines[worker]}

    def end(self, state: str, reason: str = "") -> None:
        """End the run, unless it has ended."""
        if not self.state:
            self.state, self.reason = state, reason
            for line in self._lines.values():
                line.send(stop=state)

    def look(self, first: str) -> None:
        """Process the others' messages. ``first``: the status of our own worker."""
        self._accept()
        for worker, line in self._lines.items():
            for message in line.messages():
                if "clock" in message:
                    line.send(clock=time.time())
                elif "ended" in message:
                    self.note(worker, message["ended"])
                elif "ready" in message:
                    self.ready[worker] = bool(message["ready"])
                elif "taken" in message:
                    self.taken[worker] = int(message["taken"]), bool(message["ok"])
            if line.broken and worker not in self.ended:
                self._lose(worker, f"{self._machines[worker]} no longer answers: rebooted, or cut off?")
        if self._listener is not None and time.monotonic() > self._connect_until:
            for worker in self._machines.keys() - self._lines.keys() - self.ended.keys() - {first}:
                self._lose(worker, f"{self._machines[worker]} did not connect in {CONNECT} s")
        self._decide()

    @property
    def over(self) -> bool:
        """Whether no worker is running any more."""
        return bool(self.state) and self.ended.keys() >= self._machines.keys()

    def outcome(self) -> dict[str, Any]:
        """Return the outcome to record."""
        failed = [each for each in self.ended.values() if _failed(each)]
        first = min(failed, key=lambda each: float(each["at"]), default=None)
        seconds = time.monotonic() - self._begun
        return {"state": self.state, "reason": self.reason, "at": time.time(), "seconds": seconds,
                "first": first if self.state == "failed" else None}  # fmt: skip

    def close(self) -> None:
        for line in [*self._lines.values(), *self._new]:
            line.close()
        if self._listener is not None:
            self._listener.close()

    def _lose(self, worker: str, reason: str) -> None:
        role, _, rank = worker.rpartition("-")
        self.note(worker, {"role": role, "rank": int(rank), "lost": True, "reason": reason, "lines": []})

    def _accept(self) -> None:
        if self._listener is None:
            return
        with contextlib.suppress(BlockingIOError):
            while True:
                self._new.append(Line(self._listener.accept()[0]))
        for line in [*self._new]:
            message = next(line.messages(), None)
            if message is None and not line.broken:
                continue
            self._new.remove(line)
            said = message or {}
            worker, token = str(said.get("worker")), str(said.get("token"))
            if worker not in self._machines or not hmac.compare_digest(token.encode(), self._token.encode()):
                line.close()
                continue
            self._lines[worker] = line
            if self.state:
                line.send(stop=self.state)

    def _decide(self) -> None:
        if self.state:
            return
        asked = [each for each in self.ended.values() if each.get("asked") in ("person", "system")]
        if any(each["asked"] == "person" for each in asked):
            self.end("stopped")
        elif asked:
            self.end("failed", asked[0].get("why", ""))
        elif any(map(_failed, self.ended.values())):
            self.end("failed")
        elif time.monotonic() > self._deadline:
            self.end("timed-out")
        elif self.ended.keys() >= {*self._decides}:
            self.end("done")


def _failed(status: Mapping[str, Any]) -> bool:
    return bool(status.get("lost")) or status.get("exit", 0) not in (0, STOPPED)
