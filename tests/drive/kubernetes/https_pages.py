"""A real HTTPS server on loopback whose pages are what a test says, for who trusts `SSL_CERT_FILE`."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from infra.drive.kubernetes import certificates


@contextmanager
def serving(folder: Path, page: Callable[[str], tuple[int, bytes]]) -> Iterator[tuple[str, Path]]:
    """Its URL and the file of its authority. ``page``: status and body of a path without its first slash."""
    folder.mkdir()
    authority = certificates.authority("pages", datetime.now(UTC))
    pair = certificates.server(authority, "localhost", ["localhost"], datetime.now(UTC), timedelta(days=1))
    chain, trusted = folder / "server.pem", folder / "authority.pem"
    chain.write_text(pair.certificate + pair.key)
    trusted.write_text(authority.certificate)

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = page(self.path.removeprefix("/"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}", trusted
        finally:
            server.shutdown()
            thread.join()
