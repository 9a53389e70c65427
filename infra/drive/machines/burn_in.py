"""Tests machines with GPUs before they take work: runs ``causeway-gpu-health burn-in`` on them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from infra.drive.machines import report
from infra.drive.machines.converge import Cutting, Outcome, Run, Watcher, on_each
from infra.drive.ssh import opened, settings
from infra.errors import DriveError

RECIPE: Final = "recipe[gpu::burn_in]"
"""What a burn-in needs that no role has."""

LEVELS: Final = range(1, 5)
"""DCGM's."""

_RESULT: Final = "/var/lib/causeway/burn-in.json"

# Exit codes of the program (cookbooks/gpu/files/gpu_health/burn_in.py).
_PASSED, _FAILED = 0, 1


def burn_in(build: Path, machines: Mapping[str, str], *, level: int, at_once: int, watcher: Watcher) -> Run:
    """Burn in machines (name → full name). Those that are cut off stop their tests, and keep the earlier
    result."""
    settings()
    return on_each(
        {name: partial(_one, build, name, fqdn, level, watcher) for name, fqdn in machines.items()},
        at_once=at_once,
        watcher=watcher,
    )


def _one(build: Path, name: str, fqdn: str, level: int, watcher: Watcher, cutting: Cutting) -> Outcome:
    watcher.phase(name, "connecting")
    with opened(fqdn) as remote, cutting.ends(remote.close):
        watcher.phase(name, "burning in")
        listener = _Listener(name, watcher)
        command = f"exec causeway-gpu-health burn-in --attended --level {level}"
        code, _ = remote.run(f"PATH=$PATH:/usr/local/sbin\n{command}", out=listener, check=False)
        log = listener.getvalue()
        if code not in (_PASSED, _FAILED):
            last = log.strip().splitlines()[-1:] or [f"exit code {code}"]
            raise DriveError(f"{name}: {last[0]}")
        _, text = remote.run(f"cat {_RESULT}")
    found = report.parse_burn_in(_parsed(text))
    if found is None:
        raise DriveError(f"{name}: {_RESULT} cannot be parsed")
    kept = report.keep(build, name, "burn-in", found.text, log)
    if code == _PASSED:
        untested = "no test of the GPUs' hardware ran" if found.state == "skipped" else ""
        return Outcome(name, "done", error=untested, kept=kept)
    return Outcome(
        name, "failed", error="\n".join([f"{name} failed its burn-in:", *found.reasons]), kept=kept
    )


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


class _Listener(io.StringIO):
    """Tells the watcher each line that the program prints, as it comes."""

    def __init__(self, name: str, watcher: Watcher) -> None:
        super().__init__()
        self._name, self._watcher = name, watcher

    def write(self, text: str) -> int:
        if line := text.strip():
            self._watcher.phase(self._name, "burning in", line)
        return super().write(text)
