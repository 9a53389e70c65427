"""Series that runs wrote: read, thinned and drawn."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causeway.series import POINTS, metrics_of, sparkline, thinned, usage_of

_VALUES = st.lists(st.floats(), max_size=300)


def test_of_a_step_that_was_reported_twice_the_last_start_counts() -> None:
    first = "".join(
        json.dumps({"step": step, "metrics": {"loss": 10.0 - step, "lr": 1}}) + "\n" for step in range(4)
    )
    second = json.dumps({"step": 2, "metrics": {"loss": 5}}) + '\n{"step": 3, "met'
    found = metrics_of(['ut off": 1}\n' + first, second])
    assert found["loss"].points == [(0, 10.0), (1, 9.0), (2, 5), (3, 7.0)]
    assert found["lr"].last == (3, 1)


@pytest.mark.parametrize(
    "line",
    ["", "[]", "3", "not a line", '{"step": 1}', '{"metrics": {"x": 1}}', '{"step": 1, "metrics": [1]}',
     '{"step": 1, "metrics": {"x": "high"}}', '{"step": Infinity, "metrics": {"x": 1}}'],
)  # fmt: skip
def test_a_line_that_is_no_report_is_left_out(line: str) -> None:
    good = '{"step": 2, "at": 1.0, "metrics": {"x": 0.5}}'
    assert metrics_of([f"{line}\n{good}\n"])["x"].points == [(2, 0.5)]


def test_what_is_not_a_number_is_null_in_json() -> None:
    lines = [{"step": 1, "metrics": {"x": math.inf}}, {"step": 2, "metrics": {"x": math.nan}}]
    plain = metrics_of(["\n".join(map(json.dumps, lines))])["x"].plain()
    assert plain == {"step": 2, "last": None, "least": None, "most": None, "points": [[1, None], [2, None]]}


@given(_VALUES, st.integers(1, 60))
def test_a_sparkline_has_its_width_whatever_is_drawn(values: list[float], width: int) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) == min(width, len(values))
    assert {*drawn} <= {*" ▁▂▃▄▅▆▇█"}


def test_a_sparkline_rises_with_its_values() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([3, math.nan, 3], 3) == "▁ ▁"


@given(st.lists(st.integers(), max_size=1000), st.integers(2, POINTS))
def test_what_is_thinned_keeps_its_ends(values: list[int], most: int) -> None:
    found = thinned(values, most)
    assert len(found) == min(len(values), most)
    assert [*found[:1], *found[-1:]] == [*values[:1], *values[-1:]]


def test_gpus_that_do_not_measure_their_use_are_left_out_of_the_mean(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"models": ["NVIDIA TITAN X", "NVIDIA TITAN X"], "driver": "550.54"},
        {
            "at": 1.0,
            "cpus": 2.5,
            "gpus": [
                {"use": 80, "memory": 1024, "total": 12288},
                {"use": None, "memory": 2048, "total": 12288},
            ],
        },
        {"at": 31.0, "cpus": 1.5, "memory": 4096},
    ]
    found = usage_of(["\n".join(map(json.dumps, lines))])
    assert found.series == {
        "cpus": [2.5, 1.5],
        "memory": [4096],
        "gpu": [80.0],
        "gpu_memory": [3072 * 2**20],
    }
    assert (found.driver, found.gpu_memory_total) == ("550.54", 2 * 12288 * 2**20)
