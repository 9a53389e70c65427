"""A real HTTPS server on loopback whose pages are what a test says, for who trusts `SSL_CERT_FILE`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from web import Answer, pages

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

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)

    def answer(path: str, _: object) -> Answer:
        return Answer(*page(path.removeprefix("/")))

    with pages(answer, context) as port:
        yield f"https://localhost:{port}", trusted
