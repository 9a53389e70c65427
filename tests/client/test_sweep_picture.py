"""The picture of a search in a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from client.search_world import sweep_of
from rich.console import Console

from causeway.commands.sweep_picture import picture
from causeway.commands.sweep_results import Found
from causeway.search.engine import Engine
from causeway.search.trials import Trial


def found(
    parameters: dict[str, Any], values: Sequence[tuple[dict[str, Any], float | None]], **summary: Any
) -> Found:
    trials = [
        Trial(number, given, ((1, value),) if value is not None else (), "done")
        for number, (given, value) in enumerate(values, 1)
    ]
    engine = Engine(sweep_of(parameters), "x-s1")
    return Found("x-s1", "here", "ada", "done", "", 0.0, engine, trials, summary, "causeway rerun --local")


def lines(search: Found, **console: Any) -> list[str]:
    out = Console(file=io.StringIO(), width=200, highlight=False, soft_wrap=True, **console)
    for line in picture(search):
        out.print(line)
    return str(out.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_each_trial_is_a_line_by_its_rank_from_axis_to_axis() -> None:
    parameters = {"lr": {"log": [1e-4, 1]}, "opt": ["adam", "sgd"]}
    search = found(
        parameters,
        [
            ({"lr": 1e-4, "opt": "sgd"}, 0.9),
            ({"lr": 1.0, "opt": "adam"}, 0.1),
            ({"lr": 0.01, "opt": "sgd"}, None),
        ],
    )
    blank, names, tops, *rows, bottoms, _ = lines(search)
    assert (blank, names.split()) == ("", ["lr", "opt", "loss"])
    assert (tops.split(), bottoms.split()) == (["1", "sgd", "0.9"], ["0.0001", "adam", "0.1"])
    places = [names.index(each) for each in ("lr", "opt", "loss")]
    assert [rows[0][place] for place in (places[0], places[2])] == ["1", "2"]
    assert [rows[-1][place] for place in (places[0], places[2])] == ["2", "1"]
    assert not {"3", "·"} & {*"".join(rows)}, "a trial without a number is not drawn"
    assert search.repeats == "causeway rerun --local x-s1-2"


def test_the_best_is_bold_and_many_axes_and_long_names_have_80_columns() -> None:
    names = [f"a_parameter_with_a_long_name_{number}" for number in range(12)]
    values = [
        ({name: (at * 7 + number) % 5 for at, name in enumerate(names)}, float(number))
        for number in range(30)
    ]
    search = found({name: {"int": [0, 5]} for name in names}, values, importance={names[11]: 0.9})
    drawn = lines(search)
    assert max(map(len, drawn)) <= 80
    assert "·" in "".join(drawn)
    assert "…" in drawn[1]
    assert any("\x1b[1;32m" in line for line in lines(search, force_terminal=True, color_system="standard"))


@pytest.mark.parametrize(
    "values", [[], [({"a": 1}, None)], [({"a": 1}, 0.5)], [({"a": 1}, 0.5), ({"a": 1}, 0.5)]]
)
def test_there_may_be_little_to_draw(values: list[tuple[dict[str, Any], float | None]]) -> None:
    assert bool(lines(found({"a": [1, 2]}, values))) is (len(values) > 1)
