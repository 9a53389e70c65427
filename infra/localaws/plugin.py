"""Where tests change what the embedded AWS does: faults, a record of the calls, machines behind instances.

``$LOCALAWS_PLUGIN`` is ``FOLDER:MODULE``: that module's ``PLUGIN`` takes the place of ``Plugin()``
in a server that starts. Only tests and benchmarks set it; theirs is ``tests/localaws/plugin.py``.
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
        """Answer a call; ``carry_out`` has moto do it. Other calls may run meanwhile."""
        return carry_out(call, environ, start_response)

    def before(self, call: Call, method: str, account: str) -> None:
        """moto is about to carry out a call. No other call runs meanwhile."""

    def control(self, method: str, path: str, body: bytes) -> Any:
        """The answer, for JSON, to a path below the control path that the server has not; None: unknown."""
        return None

    def health(self) -> Mapping[str, Any]:
        """More fields of the answer to ``GET /health``."""
        return {}

    def refusal(self, region: str, launch: str) -> tuple[str, str] | None:
        """Code and message of the error that a launch of an instance gets. ``launch``: type, zone, market."""
        return None

    def extend(self, service: str) -> None:
        """moto's ``service`` was loaded, and has our extensions."""

    def end(self) -> None:
        """The server ends."""


active = Plugin()
"""That of this process."""


def load() -> None:
    """Use the plugin that the environment names, if any."""
    global active
    if given := os.environ.get(VARIABLE):
        folder, _, module = given.rpartition(":")
        sys.path.append(folder)
        active = import_module(module).PLUGIN
