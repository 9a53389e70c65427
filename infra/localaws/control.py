"""The client of a running embedded AWS: is it ours, what does it hold, and the faults it shall show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.localaws import recording
from infra.localaws.faults import Fault, dumps, loads
from infra.localaws.server import CONTROL

_PATIENCE: Final = 30.0
"""Seconds to wait for an answer; a server that works on a large call may take some."""


class NotOursError(Exception):
    """Nothing answers at that port, or something that is not the server meant."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control path of one server."""

    port: int
    nonce: str

    def health(self) -> dict[str, Any]:
        """``environment``, ``pid``, ``started`` (seconds since 1970), and whether its instances have
        ``machines`` behind them; ``NotOursError`` if it is gone."""
        return self._ask("GET", "/health")  # type: ignore[no-any-return]

    def inventory(self) -> dict[str, dict[str, list[str]]]:
        """Region → kind of resource → ids; what a fresh account has is left out."""
        return self._ask("GET", "/inventory")  # type: ignore[no-any-return]

    def order(self, *faults: Fault) -> None:
        """Let these happen, from now on."""
        self._ask("POST", "/faults", dumps(faults))

    def faults(self) -> list[Fault]:
        """Those still waiting for their call."""
        return loads(json.dumps(self._ask("GET", "/faults")))

    def clear_faults(self) -> None:
        self._ask("DELETE", "/faults")

    def record_calls(self) -> None:
        """Record each call from now on."""
        self._ask("POST", "/calls")

    def calls(self) -> list[recording.Recorded]:
        """Those since ``record_calls``, in the order in which they were made."""
        return recording.loads(json.dumps(self._ask("GET", "/calls")))

    def stop(self) -> None:
        """Ask it to end. Returns before it has."""
        self._ask("POST", "/stop")

    def _ask(self, verb: str, path: str, body: str = "") -> Any:
        from http.client import HTTPConnection, HTTPException

        # Not urllib: a proxy of the user's environment has no say over loopback.
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
