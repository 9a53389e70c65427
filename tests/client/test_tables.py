"""Tables of the terminal: padded where they fit, cut where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Literal

import pytest
from rich.console import Console
from rich.text import Text

from causeway.commands.tables import show_table

TITLES = ("RUN", "STATE", "BY")
ROWS = [("resnet-1", Text("failed", style="red"), "ada"), ("b", Text("done"), "アラン")]


WIDE = ("RUN", "STATE", "FOR", "WORKERS", "RESTARTS", "ON", "COST", "BY")
ROW = ("resnet-large-batch-17", "running", "1d12h", "16 running", "0", "titan-1, titan-2, titan-3 in rack-a",
       "$1,234.56", "ada")  # fmt: skip


def shown(
    width: int,
    *,
    terminal: bool = True,
    colours: Literal["standard"] | None = None,
    titles: Sequence[str] = TITLES,
    rows: Sequence[Sequence[str | Text]] = ROWS,
) -> str:
    out = Console(file=StringIO(), width=width, force_terminal=terminal, color_system=colours)
    show_table(out, titles, rows)
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


def test_columns_begin_below_their_titles() -> None:
    lines = shown(80).splitlines()
    assert len(lines) == 3
    starts = [lines[0].index(title) for title in TITLES]
    assert [line[starts[1] :].split()[0] for line in lines[1:]] == ["failed", "done"]
    assert [line[starts[2] :].split()[0] for line in lines[1:]] == ["ada", "アラン"]


def test_colours_are_for_a_terminal() -> None:
    assert "\x1b[31mfailed" in shown(80, colours="standard")
    assert "\x1b" not in shown(80, terminal=False)


@pytest.mark.parametrize("width", [40, 60, 80, 101, 200])
def test_where_it_is_narrow_no_word_is_broken_and_whole_columns_are_left_out(width: int) -> None:
    titles, row = shown(width, titles=WIDE, rows=[ROW]).splitlines()
    assert max(len(titles), len(row)) <= width
    assert ROW[0] in row
    words = {word.rstrip(",") for cell in ROW for word in cell.split()}
    assert [word for word in row.split() if word.rstrip(",") not in words and "…" not in word] == []
    kept = titles.split()
    assert kept == [title for title in WIDE if title in kept]
    assert (kept == list(WIDE)) is (width >= 101)


def test_where_no_terminal_reads_it_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert shown(30, terminal=False, titles=WIDE, rows=[ROW]).splitlines()[1].split() == " ".join(ROW).split()


def test_without_rows_there_are_titles() -> None:
    assert shown(80, rows=[]).split() == list(TITLES)
