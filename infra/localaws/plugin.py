"""The hook with which tests change the embedded AWS: faults, a record of calls, machines behind instances.

``$LOCALAWS_PLUGIN`` is ``FOLDER:MODULE``: that module's ``PLUGIN`` replaces ``Plugin()`` in a new server.
Only tests and benchmarks set it; theirs is ``tests/localaws/plugin.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

from infra.localaws.request import Call, Environ

VARIABLE: Final = "LOCALAWS_PLUGIN"

StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]
Serve: TypeAlias = Callable[[Call, Environ, StartResponse], Iterable[bytes]]


class Plugin:
    """A plugin that changes nothing."""

    def serve(
        self, call: Call, environ: Environ, start_response: StartResponse, carry_out: Serve
    ) -> Iterable[bytes]:
        """Handle a call; ``carry_out`` passes it to moto. Other calls may run concurrently."""
        return carry_out(call, environ, start_response)

    def before(self, call: Call, method: str, account: str) -> None:
        """Called before moto handles a call. No other call runs concurrently."""

    def control(self, method: str, path: str, body: bytes) -> Any:
        """The JSON response for a path below the control path that the server does not have; None:
        unknown."""
        return None

    def health(self) -> Mapping[str, Any]:
        """Further fields of the response to ``GET /health``."""
        return {}

    def refusal(self, region: str, launch: str) -> tuple[str, str] | None:
        """Code and message of an error for launching an instance, or None. ``launch``: type, zone, market."""
        return None

    def extend(self, service: str) -> None:
        """Called after moto's ``service`` was loaded and extended."""

    def end(self) -> None:
        """Called when the server ends."""


active = Plugin()
"""The plugin of this process."""


def load() -> None:
    """Load the plugin named in the environment, if any."""
    global active
    if given := os.environ.get(VARIABLE):
        folder, _, module = given.rpartition(":")
        sys.path.append(folder)
        active = import_module(module).PLUGIN
