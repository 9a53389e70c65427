"""Ports of 127.0.0.1 for programs that cannot be given port 0."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """Ports that the kernel gives to no other process while the block lasts.

    A bound socket that does not listen keeps each: bind(2) to port 0 never chooses it, and a server that
    sets SO_REUSEADDR, as Go's do (net, ``setDefaultListenerSockopts``), may listen there (socket(7)).
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in sockets]
