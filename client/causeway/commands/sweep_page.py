"""A self-contained HTML page for a search: parallel coordinates, and the curve of each trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from causeway.commands.show import number
from causeway.commands.sweep_results import Found, word
from causeway.search.fields import LogRange, plain
from causeway.search.trials import Trial

_WIDTH, _HEIGHT, _LEFT, _TOP = 1100, 420, 90, 50
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222 }
svg { max-width: 100%; height: auto; overflow: visible }
path { fill: none; stroke-width: 1.5; opacity: .75 } path:hover { stroke-width: 4; opacity: 1 }
path.best { stroke-width: 3.5; opacity: 1 } path.none { stroke: #ccc; stroke-dasharray: 4 3 }
line { stroke: #999 }
text { font-size: 12px; fill: #333; paint-order: stroke; stroke: #fff; stroke-width: 3px }
.name { font-weight: 600; fill: #000 }
table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: left }
tr { border-bottom: 1px solid #eee }
"""


def html(found: Found) -> str:
    """Return the page."""
    best, metric = found.best, escape(found.sweep.metric)
    said = "no trial has reported a number" if best is None else f"best: {found.run(best)}"
    head = escape(f"{found.sweep.goal} {found.sweep.metric}; {found.state}; {said}")
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{escape(found.name)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(found.name)}</h1><p>{head}</p>",
        *_coordinates(found),
        f"<h2>{metric} by step</h2>",
        *_curves(found),
        *_table(found),
    ]
    return "".join(parts)


class Axis:
    """Maps values to heights."""

    def __init__(self, name: str, values: Sequence[object], *, logarithmic: bool = False) -> None:
        self.name = name
        numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
        self._words = [] if len(numbers) == len(values) else sorted({plain(each) for each in values})  # type: ignore[arg-type]
        self._scale: Callable[[float], float] = math.log if logarithmic else float
        self._low, self._high = min(numbers, default=0.0), max(numbers, default=1.0)

    def at(self, value: object) -> float:
        """Return the height of a value: from 0, at the bottom, to 1."""
        if self._words:
            return (self._words.index(plain(value)) + 0.5) / len(self._words)  # type: ignore[arg-type]
        low, high = self._scale(self._low), self._scale(self._high)
        return (self._scale(float(value)) - low) / (high - low) if high > low else 0.5  # type: ignore[arg-type]

    def marks(self) -> list[tuple[float, str]]:
        if self._words:
            return [(self.at(word), word) for word in self._words]
        return [(self.at(each), number(each)) for each in dict.fromkeys((self._low, self._high))]


def axes_of(found: Found) -> list[Axis]:
    """Return the axes: one for each parameter, then the metric."""
    names = dict.fromkeys(name for each in found.trials for name in each.parameters)
    made = []
    for name in names:
        values = [each.parameters[name] for each in found.trials if name in each.parameters]
        made.append(Axis(name, values, logarithmic=isinstance(found.sweep.parameters.get(name), LogRange)))
    return [*made, Axis(found.sweep.metric, [*known_of(found).values()])]


def known_of(found: Found) -> dict[int, float]:
    """Return trial → its value, for trials with a finite one."""
    values = {each.number: found.engine.value(each) for each in found.trials}
    return {key: value for key, value in values.items() if value is not None and math.isfinite(value)}


def _coordinates(found: Found) -> Iterator[str]:
    axes, known, best = axes_of(found), known_of(found), found.best
    apart = (_WIDTH - 2 * _LEFT) / max(len(axes) - 1, 1)
    places = [_LEFT + at * apart for at in range(len(axes))]
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    for x in places:
        yield f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{_TOP}" y2="{_HEIGHT - _TOP}"/>'
    for each in _in_order(found, known):
        points = []
        for axis, x in zip(axes, places, strict=True):
            value = known.get(each.number) if axis is axes[-1] else each.parameters.get(axis.name)
            if value is not None:
                points.append(f"{x:.0f},{_y(axis.at(value)):.1f}")
        yield _path(found, each, points, axes[-1], known, best)
    for axis, x in zip(axes, places, strict=True):
        yield f'<text class=name x="{x:.0f}" y="{_TOP - 20}" text-anchor=middle>{escape(axis.name)}</text>'
        for share, text in axis.marks():
            yield f'<text x="{x + 6:.0f}" y="{_y(share) + 4:.0f}">{escape(text)}</text>'
    yield "</svg>"


def _curves(found: Found) -> Iterator[str]:
    known, best = known_of(found), found.best
    points = [point for each in found.trials for point in each.curve if math.isfinite(point[1])]
    if not points:
        return
    steps, values = Axis("step", [step for step, _ in points]), Axis("", [value for _, value in points])
    metric = axes_of(found)[-1]
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    for share, text in values.marks():
        yield f'<text x="10" y="{_y(share):.0f}">{escape(text)}</text>'
    for share, text in steps.marks():
        yield f'<text x="{_x(share):.0f}" y="{_HEIGHT - _TOP + 20}" text-anchor=middle>{escape(text)}</text>'
    for each in _in_order(found, known):
        drawn = [
            f"{_x(steps.at(step)):.1f},{_y(values.at(value)):.1f}"
            for step, value in each.curve
            if math.isfinite(value)
        ]
        yield _path(found, each, drawn, metric, known, best)
    yield "</svg>"


def _in_order(found: Found, known: dict[int, float]) -> list[Trial]:
    """Order trials for drawing: the best last, above the others."""
    ranked = found.ranked()
    return [each for each in reversed(ranked) if each.number in known or each.curve == ()]


def _path(
    found: Found,
    trial: Trial,
    points: Sequence[str],
    metric: Axis,
    known: dict[int, float],
    best: Trial | None,
) -> str:
    if not points:
        return ""
    value = known.get(trial.number)
    title = f"{found.run(trial)} {word(trial)}: " + ", ".join(
        f"{name}={plain(each)}" for name, each in trial.parameters.items()
    )
    title += "" if value is None else f"; {found.sweep.metric} {number(value)}"
    kind = "none" if value is None else "best" if best is not None and best.number == trial.number else ""
    good = 0.0 if value is None else metric.at(value)
    good = 1 - good if found.sweep.goal == "minimize" else good
    # From blue (bad) to red (good).
    colour = "" if value is None else f' style="stroke: hsl({240 - 240 * good:.0f} 80% 45%)"'
    dots = " ".join(points if len(points) > 1 else [*points, *points])
    return f'<path class="{kind}"{colour} d="M{dots}"><title>{escape(title)}</title></path>'


def _table(found: Found) -> Iterator[str]:
    names = dict.fromkeys(name for each in found.trials for name in each.parameters)
    yield "<h2>Trials</h2><table><tr>"
    yield from (
        f"<th>{escape(each)}" for each in ("trial", "state", found.sweep.metric, "step", *names, "why")
    )
    for each in found.ranked():
        value = found.engine.value(each)
        cells = [found.run(each), word(each), "" if value is None else number(value), str(each.last_step)]
        cells += [plain(each.parameters[name]) if name in each.parameters else "" for name in names]
        yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in [*cells, each.cause])
    yield "</table>"


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - 2 * _LEFT)


def _y(share: float) -> float:
    return _HEIGHT - _TOP - share * (_HEIGHT - 2 * _TOP)
