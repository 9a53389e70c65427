"""Draws a search in a terminal as parallel coordinates: a column for each axis, a line for each trial.

The nine best trials are drawn with their ranks as digits, the best in bold; others as dots. At most 80
columns wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from causeway.commands.sweep_page import Axis, axes_of, known_of
from causeway.commands.sweep_results import Found

_WIDTH, _HEIGHT = 80, 9
_MARGIN = 2
_NARROWEST = 12
"""Minimum number of columns between two axes, so that their labels are readable."""
_RANKS = 9


def picture(found: Found) -> Iterator[Text]:
    """Yield the lines; empty before two trials have a value."""
    known = known_of(found)
    ranked = [each for each in found.ranked() if each.number in known]
    if len(ranked) < 2:
        return
    axes = _chosen(found)
    apart = (_WIDTH - _MARGIN) // len(axes)
    places = [_MARGIN + at * apart for at in range(len(axes))]
    canvas = [[" "] * (_MARGIN + apart * (len(axes) - 1) + 1) for _ in range(_HEIGHT)]
    for place in places:
        for row in canvas:
            row[place] = "│"
    # The best last, above the others.
    for rank, each in reversed([*enumerate(ranked, 1)]):
        points = [
            (place, _row(axis.at(value)))
            for axis, place in zip(axes, places, strict=True)
            if (value := known[each.number] if axis is axes[-1] else each.parameters.get(axis.name))
            is not None
        ]
        _draw(canvas, points, str(rank) if rank <= _RANKS else "·")
    yield Text("")
    yield Text(_labelled(places, [axis.name for axis in axes], apart), style="bold")
    yield Text(_labelled(places, [_mark(axis, -1) for axis in axes], apart), style="dim")
    for row in canvas:
        line = Text("".join(row))
        line.highlight_regex("1", "bold green")
        line.highlight_regex("[│·]", "dim")
        yield line
    yield Text(_labelled(places, [_mark(axis, 0) for axis in axes], apart), style="dim")
    left_out = len(axes_of(found)) - len(axes)
    more = f"; {left_out} more parameters: --html FILE" if left_out else ""
    yield Text(f"  by rank, 1 is the best{more}", style="dim")


def _chosen(found: Found) -> Sequence[Axis]:
    """Choose the axes that fit: the most important parameters, then the metric."""
    *axes, metric = axes_of(found)
    shares = found.summary.get("importance", {})
    first = sorted(axes, key=lambda axis: -shares.get(axis.name, 0.0))[: _WIDTH // _NARROWEST - 1]
    return [*(axis for axis in axes if axis in first), metric]


def _row(share: float) -> int:
    """Return the row, counted from the top, of ``share``: from 0, at the bottom, to 1."""
    return round((1 - share) * (_HEIGHT - 1))


def _draw(canvas: list[list[str]], points: Sequence[tuple[int, int]], sign: str) -> None:
    """Draw a line through points."""
    for (left, from_row), (right, to_row) in pairwise(points):
        for x in range(left, right + 1):
            canvas[round(from_row + (to_row - from_row) * (x - left) / (right - left))][x] = sign


def _mark(axis: Axis, which: int) -> str:
    return axis.marks()[which][1]


def _labelled(places: Sequence[int], texts: Sequence[str], apart: int) -> str:
    """Place each text at its column, cut to the available width."""
    line = ""
    for place, text in zip(places, texts, strict=True):
        line = set_cell_size(line, place)
        line += text if cell_len(text) < apart else set_cell_size(text, apart - 2) + "…"
    return line
