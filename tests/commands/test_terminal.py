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
        Problem("NET003", "c", "odd", waived="known"),
    ]
    with pytest.raises(Exit) as caught, reported_errors():
        raise SpecError(problems)
    assert caught.value.code == 1
    *lines, count = capsys.readouterr().err.splitlines()
    assert lines == [
        "a: overlaps [NET001]",
        "warning: b: too big [NET002]",
        "waived: c: odd [NET003] (waived: known)",
    ]
    assert count.startswith("1 error;")


@pytest.mark.parametrize(
    ("problem", "code", "fact"),
    [
        (UsageError("--env is missing"), 1, "error: --env is missing\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            PermissionError(errno.EACCES, "Permission denied", "build/lab"),
            1,
            "error: build/lab: Permission denied",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "error: No space left on device"),
    ],
    ids=["ours", "ctrl-c", "folder", "disk"],
)
def test_what_is_no_fault_of_ours_is_no_traceback(
    problem: BaseException, code: int, fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exit) as caught, reported_errors():
        raise problem
    assert caught.value.code == code
    assert capsys.readouterr().err.startswith(fact)


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
    tell_count([odd, odd, Problem("NET003", "c", "odd", waived="known")], "lab")
    tell_count([], "lab")
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("1 waived, 2 warnings")
    assert line.endswith("invoke validate --env lab")
