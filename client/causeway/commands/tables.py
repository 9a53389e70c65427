"""Tables of the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_BETWEEN = "  "


def table(out: Console, titles: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> RenderableType:
    """Columns below their titles; cells are folded where ``out`` is too narrow.

    ``rich.table`` measures, wraps and pads each cell on its own: a third of a second for 500 rows, as much as
    all the rest of ``ps``. It is used where something has to be folded.
    """
    cells = [[each if isinstance(each, Text) else Text(each) for each in row] for row in rows]
    lengths = [[cell_len(each.plain) for each in row] for row in cells]
    widths = [max(column) for column in zip([cell_len(title) for title in titles], *lengths, strict=True)]
    if sum(widths) + len(_BETWEEN) * (len(widths) - 1) > out.width:
        return _folded(titles, cells)
    header = _BETWEEN.join(title.ljust(width) for title, width in zip(titles, widths, strict=True))
    parts: list[tuple[str, str] | str] = [(header, "bold")]
    for row, found in zip(cells, lengths, strict=True):
        parts.append("\n")
        for each, length, width in zip(row, found, widths, strict=True):
            parts.append((each.plain, str(each.style)) if each.style else each.plain)
            parts.append(" " * (width - length) + _BETWEEN)
        parts.pop()
    return Text.assemble(*parts, no_wrap=True, end="\n")


def _folded(titles: Sequence[str], cells: Sequence[Sequence[Text]]) -> Table:
    found = Table(box=None, pad_edge=False)
    for title in titles:
        found.add_column(title, overflow="fold")
    for row in cells:
        found.add_row(*row)
    return found
