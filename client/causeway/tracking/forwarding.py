"""Forwards HTTP requests to a server with headers that the client does not know. Bodies are streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Any

AWAY = (OSError, HTTPException)
"""Errors raised if a server does not answer."""
UNAVAILABLE = 424
"""Status of a request that cannot be served without the server. MLflow's client would retry others for
minutes before it reports an error (``mlflow.utils.request_utils``)."""
_PIECE = 1 << 16
_LONGEST = 1 << 26
"""Maximum size in bytes of a body that is kept in memory."""
_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
"""RFC 9110, 7.6.1."""


class Forwarded(BaseHTTPRequestHandler):
    """A request that is forwarded in part or in whole. Subclasses define how."""

    protocol_version = "HTTP/1.1"
    # Head and body of an answer in one packet: otherwise the second would wait 40 ms for an acknowledgement.
    wbufsize = _PIECE
    disable_nagle_algorithm = True
    body: Iterator[bytes]
    """Body of the request, in pieces."""

    def do_any(self) -> None:
        """Handle a request of any method."""
        raise NotImplementedError

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):  # the client is gone
            self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._begin
        raise AttributeError(name)

    def _begin(self) -> None:
        self.body = self._pieces()
        self.do_any()

    def log_message(self, *_: Any) -> None:
        """Log nothing: the server has its own log."""

    def _pieces(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            yield from _chunks(self.rfile)
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, _PIECE))
            if not piece:
                raise ConnectionError("the request is incomplete")
            left -= len(piece)
            yield piece

    def is_short_json(self) -> bool:
        """Whether the body is JSON that is small enough to keep in memory."""
        length = int(self.headers.get("Content-Length") or _LONGEST)
        return length < _LONGEST and "json" in self.headers.get("Content-Type", "")

    def whole_body(self) -> bytes:
        """Read the whole body of an API request."""
        found = bytearray()
        for piece in self.body:
            found += piece
            if len(found) > _LONGEST:
                raise ConnectionError("the request is too long")
        return bytes(found)

    def leave(self) -> None:
        """Read the rest of the body: a client that is still sending would not see the answer."""
        for _ in self.body:
            pass

    def answer(self, values: Any, status: int = 200) -> None:
        """Answer with JSON of our own."""
        data = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, message: str, status: int = UNAVAILABLE, code: str = "TEMPORARILY_UNAVAILABLE") -> None:
        """Answer with an error in the format of MLflow's server."""
        self.leave()
        self.answer({"error_code": code, "message": message}, status)

    def ask(
        self, connection: HTTPConnection, target: str, body: bytes | None, more: Mapping[str, str]
    ) -> HTTPResponse:
        """Return the server's answer to this request. ``target``: path and query. ``body``: None for the
        request's own. ``more``: headers that replace the client's. Raises ``AWAY``."""
        dropped = {*_HOP_BY_HOP, "host", "content-length", "accept-encoding", *map(str.lower, more)}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        headers |= more
        pieces: bytes | Iterator[bytes] | None = body
        if body is None:
            length = self.headers.get("Content-Length")
            if length is not None:
                headers["Content-Length"] = length
            # Without a length, the body is sent in chunks.
            pieces = self.body if length or self.headers.get("Transfer-Encoding") else None
        connection.request(self.command, target, pieces, headers)
        return connection.getresponse()

    def pass_back(self, found: HTTPResponse) -> None:
        """Pass on the server's answer."""
        self.send_response_only(found.status, found.reason)
        length = found.headers.get("Content-Length")
        for name, value in found.headers.items():
            if name.lower() not in {*_HOP_BY_HOP, "content-length"}:
                self.send_header(name, value)
        empty = self.command == "HEAD" or found.status in (204, 304)
        if length is not None:
            self.send_header("Content-Length", length)
        elif not empty:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not empty and (piece := found.read1(_PIECE)):
            self.wfile.write(piece if length is not None else b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if length is None and not empty:
            self.wfile.write(b"0\r\n\r\n")
        found.close()  # everything was read, so the connection can be used again


def _chunks(file: BufferedIOBase) -> Iterator[bytes]:
    """Yield the content of a chunked body (RFC 9112, 7.1)."""
    while size := int(file.readline(1 << 10).split(b";")[0], 16):
        left = size
        while left:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise ConnectionError("the request is incomplete")
            left -= len(piece)
            yield piece
        file.readline()
    while file.readline(1 << 16).strip():
        pass
