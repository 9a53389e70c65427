"""Forwards a port of this machine to a port of a pod, through the cluster's API."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import closing
from threading import Thread
from typing import Any

from causeway.cluster.connection import Cluster
from causeway.errors import CausewayError, InputError, Problem


def forward(
    cluster: Cluster,
    pod: str,
    port: int,
    here: int,
    *,
    opened: Callable[[], None],
    failed: Callable[[str], None],
) -> None:
    """Forward until Ctrl-C. ``pod``: its API path. ``here``: the local port.

    Raises CausewayError if the cluster refuses it, InputError if the port is in use. ``failed`` is called
    with the error of a single connection; other connections continue.
    """
    # Connect once first, so that a refusal is an error now and not in the browser.
    cluster.connect(pod, port).close()
    serve(lambda: cluster.connect(pod, port), here, opened=opened, failed=failed)


def serve(
    connect: Callable[[], Any], here: int, *, opened: Callable[[], None], failed: Callable[[str], None]
) -> None:
    """Until Ctrl-C, forward each connection to the local port to a connection made by ``connect``, an object
    like a socket. Otherwise as ``forward``."""
    with listening(here) as listener:
        opened()
        try:
            while True:
                browser, _ = listener.accept()
                Thread(target=_serve, args=(connect, browser, failed), daemon=True).start()
        except KeyboardInterrupt:
            return


def listening(port: int) -> socket.socket:
    """Listen on a port of the loopback address. Raises InputError if it is in use."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(
            [Problem("--port", str(port), error.strerror or str(error), "choose another")]
        ) from None


def _serve(connect: Callable[[], Any], browser: socket.socket, failed: Callable[[str], None]) -> None:
    """Serve one connection of a browser over a connection of its own."""
    with browser:
        try:
            with closing(connect()) as there:
                _copy(browser, there)
        except (CausewayError, OSError) as error:
            failed(str(error))


def _copy(one: Any, other: Any) -> None:
    """Copy in both directions until either end closes."""
    while True:
        for end in select.select([one, other], [], [])[0]:
            data = end.recv(1 << 16)
            if not data:
                return
            (other if end is one else one).sendall(data)
