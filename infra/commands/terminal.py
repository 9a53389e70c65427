"""Terminal I/O for users and programs: problems, prompts, JSON, exit codes."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from invoke.exceptions import Exit

from infra.errors import CausewayError, Problem, SpecError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors while writing a file for which the operating system does not name it."""

_RED, _YELLOW, _DIM, _BOLD, _PLAIN = "\033[31m", "\033[33m", "\033[2m", "\033[1m", "\033[0m"


def say(text: str = "") -> None:
    """Print a line of the result to standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a note to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """Print the result as JSON."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def coloured(stream: Any = None) -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return bool((stream or sys.stderr).isatty()) and not os.environ.get("NO_COLOR")


@contextmanager
def reported_errors() -> Iterator[None]:
    """Turn Causeway's errors into messages and exit codes, without a traceback."""
    try:
        yield
    except SpecError as problem:
        tell(problem.problems)
        count = sum(each.fatal for each in problem.problems)
        note(f"{count} error{'s' * (count != 1)}; nothing was done")
        raise Exit(code=problem.exit_code) from None
    except CausewayError as problem:
        note(f"{_error()} {problem}")
        raise Exit(code=problem.exit_code) from None
    except KeyboardInterrupt:
        note("stopped")
        raise Exit(code=130) from None
    except BrokenPipeError:
        # The reader of our output has closed it; buffered output must not raise again at exit.
        sys.stdout = None
        raise Exit(code=141) from None
    except OSError as problem:
        # A folder without permission, a full disk. An error without a file name is a bug.
        if problem.filename is None and problem.errno not in _FULL:
            raise
        where = f"{problem.filename}: " if problem.filename is not None else ""
        note(f"{_error()} {where}{problem.strerror}; fix this and run it again")
        raise Exit(code=1) from None


def _error() -> str:
    return f"{_RED}error:{_PLAIN}" if coloured() else "error:"


def tell(problems: Iterable[Problem]) -> None:
    """Print each problem as a line; on a terminal with the line of the file and a caret."""
    for problem in problems:
        if not coloured():
            note(f"{_level(problem)}{problem}{_waived(problem)}")
            continue
        colour = _RED if problem.fatal else _YELLOW
        note(f"{_BOLD}{colour}{_level(problem) or 'error: '}{_PLAIN}{problem}{_waived(problem)}")
        for line in snippet(problem):
            note(f"{_DIM}{line}{_PLAIN}")


def tell_count(problems: Iterable[Problem], environment: str) -> None:
    """Print the number of findings besides errors, and the command that shows them, instead of repeating
    all."""
    counts = Counter("waived" if each.waived else each.level for each in problems)
    if counts:
        said = [
            f"{number} {level}{'s' if number > 1 and level != 'waived' else ''}"
            for level, number in sorted(counts.items())
        ]
        note(f"{', '.join(said)} in the spec; shown by: invoke validate --env {environment}")


def _level(problem: Problem) -> str:
    return "" if problem.fatal else "waived: " if problem.waived else f"{problem.level}: "


def _waived(problem: Problem) -> str:
    return f" (waived: {problem.waived})" if problem.waived else ""


def snippet(problem: Problem) -> tuple[str, ...]:
    """The line of the file and a caret below the value; empty if there is no such line."""
    where = problem.position
    if where is None:
        return ()
    lines = _lines(where.file)
    if not 0 < where.line <= len(lines):
        return ()
    number = f"{where.line:>6} | "
    return (f"{number}{lines[where.line - 1]}", " " * (len(number) + where.column - 1) + "^")


@cache
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return ()


def problems_json(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Problems as a JSON list of objects; keys are only added in later versions."""
    return [
        {
            "code": problem.code,
            "level": problem.level,
            "path": problem.path,
            "message": problem.message,
            "hint": problem.hint,
            "file": problem.position.file if problem.position else None,
            "line": problem.position.line if problem.position else None,
            "column": problem.position.column if problem.position else None,
            "waived": problem.waived or None,
        }
        for problem in problems
    ]


def columns(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table with a heading and one line per row."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (names, *rows)
    )


def ask_secret(question: str, *, again: bool = False) -> str:
    """A secret typed at a prompt, empty without a terminal. ``again``: must be typed twice."""
    if not sys.stdin.isatty():
        return ""
    from getpass import getpass

    while True:
        said = getpass(f"{question} ")
        if not again or not said or getpass("The same again: ") == said:
            return said
        note("The two differ.")


def ask(question: str) -> str:
    """The answer to a prompt; empty without a terminal."""
    if not sys.stdin.isatty():
        return ""
    sys.stderr.write(f"{question} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()
