"""HTTP servers on loopback that answer as a test says."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Handler(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        """``headers``: their names with ``_`` for each ``-``."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(
    handler: Callable[..., BaseHTTPRequestHandler], context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """The port of a server with that handler, until the block ends. ``context``: of a server of HTTPS."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    """Their names with ``_`` for each ``-``."""


Page = Callable[[str, Mapping[str, str]], Answer]
"""What a GET of a path, with its query, and with these headers is answered."""


@contextmanager
def pages(page: Page, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server that answers each GET."""

    class Pages(Handler):
        def do_GET(self) -> None:
            status, body, headers = page(self.path, self.headers)  # type: ignore[arg-type]
            self.answer(status, body, **headers)

    with serving(Pages, context) as port:
        yield port
