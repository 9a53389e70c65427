"""The client of a running embedded AWS: identifies the server, and lists its resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.localaws.server import CONTROL

_PATIENCE: Final = 30.0
"""Seconds to wait for a response; large calls may take some."""


class NotOursError(Exception):
    """Nothing answers at that port, or another server does."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control path of one server."""

    port: int
    nonce: str

    def health(self) -> dict[str, Any]:
        """``environment``, ``pid``, ``started`` (seconds since 1970), and what a plugin adds: ``machines``,
        whether instances have machines behind them. ``NotOursError`` if it is gone."""
        return self.ask("GET", "/health")  # type: ignore[no-any-return]

    def inventory(self) -> dict[str, dict[str, list[str]]]:
        """Region → kind of resource → ids, without those of a new account."""
        return self.ask("GET", "/inventory")  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Ask the server to stop. Returns before it has."""
        self.ask("POST", "/stop")

    def ask(self, verb: str, path: str, body: str = "") -> Any:
        """The JSON response to a request of the control path."""
        from http.client import HTTPConnection, HTTPException

        # Not urllib: proxies in the user's environment do not apply to loopback.
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        headers: Mapping[str, str] = {"X-Causeway-Nonce": self.nonce, "Connection": "close"}
        try:
            connection.request(verb, f"{CONTROL}{path}", body.encode(), dict(headers))
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise NotOursError(
                    f"port {self.port} answers {answer.status}: {text[:200].decode(errors='replace')}"
                )
            return json.loads(text)
        except (OSError, HTTPException, ValueError) as problem:
            raise NotOursError(f"port {self.port}: {problem}") from problem
        finally:
            connection.close()
