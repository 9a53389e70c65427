"""Reads what ``causeway.report`` writes: a line of JSON a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What a program reported of a step."""

    step: int
    at: float
    """Seconds since the epoch; 0 if the line does not say."""
    metrics: Mapping[str, float]


def parsed(line: str) -> Report | None:
    """None for a line that is not a report: it may have been cut off, or written by something else."""
    try:
        said = json.loads(line)
        metrics = {name: float(value) for name, value in said["metrics"].items()}
        return Report(int(said["step"]), float(said.get("at", 0)), metrics)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
