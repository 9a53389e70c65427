"""Explains syntax errors in YAML, at the position that has to be fixed."""

from __future__ import annotations

from typing import Final, NamedTuple

import yaml
from yaml.reader import ReaderError

from infra.errors import Position, Problem

CODE: Final = "SPEC001"


class _Words(NamedTuple):
    message: str
    hint: str = ""
    at_start: bool = False
    """Whether to point at the start of the unreadable part rather than at where parsing stopped."""


_INDENT: Final = "check the indentation of this line, and put a value with ': ' in it in quotes"
_STAR: Final = "quote a value that starts with * or &"

_WORDS: Final = {
    "could not find expected ':'": _Words(
        "a key without ': ' after it", "put a colon and a space after the key", at_start=True
    ),
    "did not find expected ',' or '}'": _Words("this '{' is not closed", "add the '}'", at_start=True),
    "did not find expected ',' or ']'": _Words("this '[' is not closed", "add the ']'", at_start=True),
    "found unexpected end of stream": _Words("this quote is not closed", "add the other one", at_start=True),
    "mapping values are not allowed in this context": _Words("a ':' where no key can be", _INDENT),
    "did not find expected key": _Words("a key was expected here", _INDENT),
    "did not find expected '-' indicator": _Words("a list item was expected here", _INDENT),
    "but found another document": _Words("a second document starts here", "remove the '---'"),
    "found undefined alias": _Words("no anchor of this name precedes it", _STAR),
    "did not find expected alphabetic or numeric character": _Words("no name of an anchor or alias", _STAR),
}  # fmt: skip
"""libyaml's messages → ours. If PyYAML does not use libyaml, its own messages are shown."""


def problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    """The error at which the parser stopped."""
    if isinstance(error, ReaderError):
        before = text.partition(chr(error.character))[0]
        place = Position(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        message = f"the character #x{error.character:04x} is not allowed in YAML"
        return Problem(CODE, "", message, position=place, hint="take it out")
    assert isinstance(error, yaml.MarkedYAMLError)
    said = error.problem or error.context or "not YAML"
    mark = error.problem_mark or error.context_mark
    if said == "found character that cannot start any token" and mark is not None:
        words = _start(_character(text, mark))
    else:
        words = _WORDS.get(said, _Words(said))
    if words.at_start:
        mark = error.context_mark or mark
    place = Position(file, mark.line + 1, mark.column + 1) if mark else Position(file, 1)
    return Problem(CODE, "", words.message, position=place, hint=words.hint)


def _start(character: str) -> _Words:
    if character == "\t":
        return _Words("this is a tab", "indent with spaces")
    return _Words(f"a value can't start with {character}", "put it in quotes")


def _character(text: str, mark: yaml.Mark) -> str:
    lines = text.split("\n")
    return lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""
