"""Reads the output of ``causeway.report``: a line of JSON for each step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What a program reported for a step."""

    step: int
    at: float
    """Seconds since the epoch; 0 if the line has no time."""
    metrics: Mapping[str, float]


def parsed(line: str) -> Report | None:
    """Parse a line; None if it is not a report: it may have been cut off, or written by something else."""
    try:
        said = json.loads(line)
        metrics = {name: float(value) for name, value in said["metrics"].items()}
        return Report(int(said["step"]), float(said.get("at", 0)), metrics)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
