"""Time series of a run's metrics and usage: read from lines of JSON, thinned, drawn as a line of text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causeway.reported import parsed

_BARS = "▁▂▃▄▅▆▇█"
POINTS = 200
"""Maximum number of points of a series in JSON."""


@dataclass(frozen=True)
class Metric:
    """A metric that the program reported, ordered by step."""

    points: Sequence[tuple[int, float]]
    """(step, value); for a step that was reported twice, the last."""

    @property
    def last(self) -> tuple[int, float]:
        return self.points[-1]

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object. NaN and infinity become None."""
        known = [value for _, value in self.points if math.isfinite(value)]
        step, value = self.last
        return {
            "step": step,
            "last": finite(value),
            "least": min(known, default=None),
            "most": max(known, default=None),
            "points": [[step, finite(value)] for step, value in thinned(self.points, POINTS)],
        }


@dataclass(frozen=True)
class Usage:
    """What one worker used."""

    models: Sequence[str] = ()
    """Models of its GPUs, as the driver names them."""
    driver: str = ""
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """``gpu``: mean percentage of time that its GPUs were busy. ``gpu_memory``, ``memory``: bytes. ``cpus``:
    number of processors."""
    gpu_memory_total: float = 0
    """In bytes, for all of its GPUs."""

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "models": list(self.models),
            "driver": self.driver,
            "gpu_memory_total": self.gpu_memory_total,
            **{name: [*thinned(values, POINTS)] for name, values in self.series.items()},
        }


def metrics_of(texts: Sequence[str]) -> dict[str, Metric]:
    """Return name → metric, from the output of ``causeway.report``. ``texts``: one for each start, in
    order."""
    found: dict[str, dict[int, float]] = {}
    for report in filter(None, (parsed(line) for text in texts for line in text.split("\n"))):
        for name, value in report.metrics.items():
            found.setdefault(name, {})[report.step] = value
    return {name: Metric(sorted(points.items())) for name, points in sorted(found.items())}


def usage_of(texts: Sequence[str]) -> Usage:
    """Return the usage of a worker, from the output of ``causeway.runtime``. ``texts``: one for each start,
    in order."""
    models: Sequence[str] = ()
    driver, total = "", 0.0
    series: dict[str, list[float]] = {}
    for said in _lines(texts):
        if said.get("models"):
            models, driver = said["models"], said.get("driver", "")
        for name in ("cpus", "memory"):
            if name in said:
                series.setdefault(name, []).append(said[name])
        gpus = said.get("gpus") or ()
        used = [gpu["use"] for gpu in gpus if gpu["use"] is not None]
        if used:
            series.setdefault("gpu", []).append(sum(used) / len(used))
        memory = [gpu["memory"] for gpu in gpus if gpu["memory"] is not None]
        if memory:
            series.setdefault("gpu_memory", []).append(sum(memory) * 2**20)
            total = sum(gpu["total"] or 0 for gpu in gpus) * 2**20
    return Usage(models, driver, series, total)


def thinned(values: Sequence[Any], most: int) -> Sequence[Any]:
    """Select at most ``most`` values, evenly spaced, including the first and the last."""
    if len(values) <= most:
        return values
    return [values[round(at * (len(values) - 1) / (most - 1))] for at in range(most)]


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw bars, one for each of ``width`` intervals: the mean of the interval. An interval without a number
    is a space."""
    count = min(width, len(values))
    means = []
    for at in range(count):
        part = values[at * len(values) // count : (at + 1) * len(values) // count]
        numbers = [value for value in part if math.isfinite(value)]
        means.append(sum(numbers) / len(numbers) if numbers else math.nan)
    known = [mean for mean in means if math.isfinite(mean)]
    least, most = min(known, default=0.0), max(known, default=0.0)
    # All values are equal, or their range exceeds a float.
    flat = not 0 < most - least < math.inf

    def bar(mean: float) -> str:
        if not math.isfinite(mean):
            return " "
        return _BARS[0 if flat else round((mean - least) / (most - least) * (len(_BARS) - 1))]

    return "".join(map(bar, means))


def _lines(texts: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Parse the readable lines: the first may have been cut off, and the last may be incomplete."""
    for text in texts:
        for line in text.split("\n"):
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict):
                yield said


def finite(value: float) -> float | None:
    """Return a number for JSON: None for NaN and infinity."""
    return value if math.isfinite(value) else None
