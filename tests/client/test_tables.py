"""Tables of the terminal: padded where they fit, folded where they do not."""

from __future__ import annotations

from io import StringIO
from typing import Literal

import pytest
from rich.console import Console
from rich.text import Text

from causeway.commands.tables import table

TITLES = ("RUN", "STATE", "BY")
ROWS = [("resnet-1", Text("failed", style="red"), "ada"), ("b", Text("done"), "アラン")]


def shown(width: int, *, terminal: bool = False) -> str:
    colours: Literal["standard"] | None = "standard" if terminal else None
    out = Console(file=StringIO(), width=width, force_terminal=terminal, color_system=colours)
    out.print(table(out, TITLES, ROWS))
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


def test_columns_begin_below_their_titles() -> None:
    lines = shown(80).splitlines()
    assert len(lines) == 3
    starts = [lines[0].index(title) for title in TITLES]
    assert [line[starts[1] :].split()[0] for line in lines[1:]] == ["failed", "done"]
    assert [line[starts[2] :].split()[0] for line in lines[1:]] == ["ada", "アラン"]


def test_colours_are_for_a_terminal() -> None:
    assert "\x1b[31mfailed" in shown(80, terminal=True)
    assert "\x1b" not in shown(80)


@pytest.mark.parametrize("width", [16, 20])
def test_nothing_is_lost_where_it_is_narrow(width: int) -> None:
    text = shown(width)
    assert all(len(line) <= width for line in text.splitlines())
    for word in ("resnet-1", "failed", "アラン"):
        assert set(word) <= set(text)


def test_without_rows_there_are_titles() -> None:
    out = Console(file=StringIO(), width=80)
    out.print(table(out, TITLES, []))
    assert isinstance(out.file, StringIO)
    assert out.file.getvalue().split() == list(TITLES)
