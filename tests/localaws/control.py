"""The client of what ``plugin`` adds to an embedded AWS: faults to show, and the calls that it recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass

from infra.drive.localaws import Server
from localaws import recording
from localaws.faults import Fault, dumps, loads


@dataclass(frozen=True, slots=True)
class Control:
    """Of one server."""

    server: Server

    def order(self, *faults: Fault) -> None:
        """Let these happen, from now on."""
        self.server.control.ask("POST", "/faults", dumps(faults))

    def faults(self) -> list[Fault]:
        """Those still waiting for their call."""
        return loads(json.dumps(self.server.control.ask("GET", "/faults")))

    def clear_faults(self) -> None:
        self.server.control.ask("DELETE", "/faults")

    def record_calls(self) -> None:
        """Record each call from now on."""
        self.server.control.ask("POST", "/calls")

    def calls(self) -> list[recording.Recorded]:
        """Those since ``record_calls``, in the order in which they were made."""
        return recording.loads(json.dumps(self.server.control.ask("GET", "/calls")))
