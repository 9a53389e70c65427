"""Ports that are reserved are nobody else's."""

from __future__ import annotations

import http.server
import socket

from ports import reserved


def test_only_a_server_that_is_told_of_a_reserved_port_gets_it() -> None:
    with reserved(50) as ports:
        assert len(set(ports)) == 50
        others = [socket.socket() for _ in range(2000)]
        try:
            for each in others:
                each.bind(("127.0.0.1", 0))
            assert {each.getsockname()[1] for each in others}.isdisjoint(ports)
        finally:
            for each in others:
                each.close()
        # It sets SO_REUSEADDR, as Go's servers do.
        with http.server.HTTPServer(("127.0.0.1", ports[0]), http.server.BaseHTTPRequestHandler) as server:
            assert server.server_port == ports[0]
