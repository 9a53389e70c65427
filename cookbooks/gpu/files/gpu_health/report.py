"""``/var/lib/causeway/gpu-health.json``: what ``invoke nodes`` shows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_health.files import replace
from gpu_health.findings import Findings

if TYPE_CHECKING:
    from gpu_health.judge import State


def write(path: Path, findings: Findings, state: State, now: int) -> None:
    """``healthy`` of the machine is the verdict over time; that of a GPU is the result of this check."""
    report = {
        "checked": stamp(now),
        "healthy": not state.sick,
        "reasons": [fault.text for fault in findings.faults],
        "why": state.why,
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "uuid": gpu.uuid,
                "healthy": gpu.healthy(),
                "reasons": [fault.text for fault in gpu.faults],
            }
            for gpu in findings.gpus
        ],
    }
    replace(path, json.dumps(report, indent=2))


def stamp(now: int) -> str:
    """ISO 8601, UTC: as the report and Kubernetes have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
