"""A port of this machine that is a port of a pod, over the cluster's API."""

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
    """Until Ctrl-C. ``pod``: its path. ``here``: the port of this machine.

    CausewayError where the cluster refuses it, InputError for a port in use. ``failed`` gets what is wrong
    with one connection; the others go on.
    """
    cluster.connect(pod, port).close()  # What is refused is refused now, not in the browser.
    serve(lambda: cluster.connect(pod, port), here, opened=opened, failed=failed)


def serve(
    connect: Callable[[], Any], here: int, *, opened: Callable[[], None], failed: Callable[[str], None]
) -> None:
    """Until Ctrl-C, each connection to a port of this machine is copied to one that ``connect`` gives: what a
    socket can do. Else as ``forward``."""
    with listening(here) as listener:
        opened()
        try:
            while True:
                browser, _ = listener.accept()
                Thread(target=_serve, args=(connect, browser, failed), daemon=True).start()
        except KeyboardInterrupt:
            return


def listening(port: int) -> socket.socket:
    """At a port of this machine alone. InputError where it is in use."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(
            [Problem("--port", str(port), error.strerror or str(error), "choose another")]
        ) from None


def _serve(connect: Callable[[], Any], browser: socket.socket, failed: Callable[[str], None]) -> None:
    """One connection of a browser, over one of its own."""
    with browser:
        try:
            with closing(connect()) as there:
                _copy(browser, there)
        except (CausewayError, OSError) as error:
            failed(str(error))


def _copy(one: Any, other: Any) -> None:
    """Copies in both directions until either end closes."""
    while True:
        for end in select.select([one, other], [], [])[0]:
            data = end.recv(1 << 16)
            if not data:
                return
            (other if end is one else one).sendall(data)
