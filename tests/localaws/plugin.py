"""What tests add to the embedded AWS: faults, a record of the calls, machines behind instances.

``tests/conftest.py`` and a benchmark name it in ``$LOCALAWS_PLUGIN``; see ``infra.localaws.plugin``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from infra.localaws import plugin
from infra.localaws.plugin import Serve, StartResponse
from infra.localaws.request import Call, Environ
from infra.localaws.server import answer
from localaws import faults, machines, recording
from localaws.faults import FAULTS


class Plugin(plugin.Plugin):
    """Everything, from the control path on."""

    def __init__(self) -> None:
        self._recording = recording.Recording()

    def serve(
        self, call: Call, environ: Environ, start_response: StartResponse, carry_out: Serve
    ) -> Iterable[bytes]:
        fault = FAULTS.strike(call)
        if fault is None:
            return carry_out(call, environ, start_response)
        if fault.late:
            body = carry_out(call, environ, start_response)
            time.sleep(fault.seconds)
            return body
        time.sleep(fault.seconds)
        if not fault.status:
            return carry_out(call, environ, start_response)
        return answer(start_response, *faults.answer(call, fault, environ.get("CONTENT_TYPE", "")))

    def before(self, call: Call, method: str, account: str) -> None:
        self._recording.add(call, method, account)

    def control(self, method: str, path: str, body: bytes) -> Any:
        match method, path:
            case ("GET", "/faults"):
                return json.loads(faults.dumps(FAULTS.waiting()))
            case ("POST", "/faults"):
                FAULTS.order(faults.loads(body))
            case ("DELETE", "/faults"):
                FAULTS.clear()
            case ("GET", "/calls"):
                return json.loads(recording.dumps(self._recording.calls()))
            case ("POST", "/calls"):
                self._recording.begin()
            case _:
                return None
        return {}

    def health(self) -> Mapping[str, Any]:
        return {"machines": bool(machines.program())}

    def refusal(self, region: str, launch: str) -> tuple[str, str] | None:
        fault = FAULTS.strike(Call("ec2", region, faults.CAPACITY, launch))
        return (fault.code, fault.message) if fault else None

    def extend(self, service: str) -> None:
        if service == "ec2" and machines.program():
            from localaws import instance_bodies

            instance_bodies.install()

    def end(self) -> None:
        machines.BODIES.end()


PLUGIN: Final = Plugin()
NAMED: Final = {plugin.VARIABLE: f"{Path(__file__).parents[1]}:localaws.plugin"}
"""The variable of a process that starts servers."""
