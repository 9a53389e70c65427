"""Tables for the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_BETWEEN = "  "
_GOES_FIRST = ("BY", "RESTARTS", "COST", "GPUS", "SAVED", "ON", "FOR")
"""Columns that are dropped if a table is too wide, in this order."""
_ENOUGH, _LEAST = 24, 8
"""Width that a column keeps until others have been dropped, and minimum width."""


def show_table(
    out: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    goes_first: Sequence[str] = _GOES_FIRST,
) -> None:
    """Print a table: on a terminal cut to its width, elsewhere in full, so that it can be searched."""
    out.print(table(out, titles, rows, goes_first), soft_wrap=True)


def table(
    out: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    goes_first: Sequence[str] = _GOES_FIRST,
) -> Text:
    """Return a table: titles, then a line for each row. If ``out`` is too narrow, cells are cut with ``…``,
    and columns are left out except for the first.

    ``rich.table`` measures, wraps and pads each cell separately, which takes a third of a second for 500
    rows, as long as the rest of ``ps``.
    """
    cells = [[each if isinstance(each, Text) else Text(each) for each in row] for row in rows]
    lengths = [[cell_len(each.plain) for each in row] for row in cells]
    needed = [max(column) for column in zip([cell_len(title) for title in titles], *lengths, strict=True)]
    widths = _fitted(titles, needed, _room(out), goes_first)
    parts: list[tuple[str, str] | str] = [
        (_BETWEEN.join(titles[at][:width].ljust(width) for at, width in widths.items()), "bold")
    ]
    for row, found in zip(cells, lengths, strict=True):
        parts.append("\n")
        for at, width in widths.items():
            each, length = row[at], found[at]
            if length > width:
                each = each.copy()
                each.truncate(width, overflow="ellipsis")
                length = cell_len(each.plain)
            parts.append((each.plain, str(each.style)) if each.style else each.plain)
            parts.append(" " * (width - length) + _BETWEEN)
        parts.pop()
    return Text.assemble(*parts, no_wrap=True, end="\n")


def fits_a_line(out: Console, cells: Sequence[str]) -> bool:
    """Whether columns of equal width show all cells."""
    if any("\n" in each for each in cells):
        return False
    room = _room(out)
    return room is None or max(map(cell_len, cells)) <= (room + len(_BETWEEN)) // len(cells) - len(_BETWEEN)


def _room(out: Console) -> int | None:
    """Characters in a line; None if standard output is not a terminal."""
    return out.width if out.is_terminal or "COLUMNS" in os.environ else None


def _fitted(
    titles: Sequence[str], needed: Sequence[int], room: int | None, goes_first: Sequence[str]
) -> dict[int, int]:
    """Return column → its width, for the columns that fit."""
    if room is None:
        return dict(enumerate(needed))
    there = [*range(len(needed))]
    for title in (None, *goes_first):
        there = [at for at in there if at == 0 or titles[at] != title]
        widths = {at: needed[at] for at in there}
        if _cut(widths, there[1:], _ENOUGH, room):
            return widths
    if not _cut(widths, there[1:], _LEAST, room):
        _cut(widths, there, 1, room)
    return widths


def _cut(widths: dict[int, int], which: Iterable[int], least: int, room: int) -> bool:
    """Narrow the widest columns, down to ``least``; return whether that is enough."""
    which = [*which]
    while _total(widths) > room:
        widest = max(which, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= least:
            return False
        widths[widest] -= 1
    return True


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_BETWEEN) * (len(widths) - 1)
