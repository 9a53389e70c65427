"""What a person reads of our errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from invoke.exceptions import Exit

from infra.commands.terminal import problems_json, reported_errors, snippet, tell_count
from infra.errors import Level, Position, Problem, SpecError, UsageError


def test_a_caret_stands_below_the_value(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("name: lab\npools: {gpu: {type: p9.xlarge}}\n", encoding="utf-8")
    line, caret = snippet(Problem("POOL001", "pools", "no type", position=Position(str(path), 2, 21)))
    assert line[caret.index("^") :] == "p9.xlarge}}"


def test_no_snippet_of_a_file_that_is_gone(tmp_path: Path) -> None:
    assert snippet(Problem("X", "", "m", position=Position(str(tmp_path / "gone"), 3))) == ()


def test_every_problem_is_told_and_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    problems = [
        Problem("NET001", "a", "overlaps"),
        Problem("NET002", "b", "too big", Level.WARNING),
        Problem("NET003", "c", "odd", waived="we know"),
    ]
    with pytest.raises(Exit) as caught, reported_errors():
        raise SpecError(problems)
    assert caught.value.code == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "a: overlaps [NET001]",
        "warning: b: too big [NET002]",
        "waived: c: odd [NET003] (waived: we know)",
        "1 error; nothing was done",
    ]


def test_our_errors_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit), reported_errors():
        raise UsageError("no such thing")
    assert capsys.readouterr().err == "error: no such thing\n"


def test_ctrl_c_is_no_traceback() -> None:
    with pytest.raises(Exit) as caught, reported_errors():
        raise KeyboardInterrupt
    assert caught.value.code == 130


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "build/lab"), "build/lab: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
    ids=["folder", "disk"],
)
def test_a_disk_that_refuses_is_no_traceback(
    problem: OSError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exit) as caught, reported_errors():
        raise problem
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"error: {said}; mend that, then run this again\n"


def test_faults_of_ours_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), reported_errors():
        raise ZeroDivisionError


def test_problems_for_programs() -> None:
    [row] = problems_json([Problem("NET001", "a.b", "m", position=Position("x.yaml", 3, 5))])
    assert row == {
        "code": "NET001",
        "level": "error",
        "path": "a.b",
        "message": "m",
        "hint": "",
        "file": "x.yaml",
        "line": 3,
        "column": 5,
        "waived": None,
    }


def test_findings_are_counted_where_they_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    odd = Problem("NET002", "b", "too big", Level.WARNING)
    tell_count([odd, odd, Problem("NET003", "c", "odd", waived="we know")], "lab")
    tell_count([], "lab")
    assert capsys.readouterr().err == (
        "1 waived, 2 warnings in the spec; shown by: invoke validate --env lab\n"
    )
