"""``{name}`` and ``{--name}`` of commands, and what takes their place.

``${name}``, ``{{name}}`` and ``\\{name}``, which is ``{name}`` to a shell, are none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"(?<![${\\])\{(?:([A-Za-z_][A-Za-z0-9_]*)|(--?)([A-Za-z_][A-Za-z0-9_-]*))\}(?!\})")
_QUOTED = re.compile(
    r"(?<!\S)#[^\n]*"  # a comment
    r"|<<-?\s*(?P<mark>['\"]?)(?P<end>\w+)(?P=mark).*?^\s*(?P=end)$"  # a here-document
    r"|'(?P<single>[^']*)'"
    r'|"(?P<double>(?:\\.|[^"\\])*)"',
    re.DOTALL | re.MULTILINE,
)
_WORD = re.compile(r"[^\s()\[\];|<>&*]+")
_AWK = re.compile(r"\b[gmn]?awk\b")
_OTHERS = frozenset("@%#")
"""What is before a ``{`` of other programs: ``@{u}`` of git, ``%{http_code}`` of curl, ``#{x}`` of tmux."""


class Names(NamedTuple):
    """The names that a command has places for."""

    values: frozenset[str]
    """As ``{name}``."""
    options: frozenset[str]
    """As ``{--name}``; a ``-`` within is a ``_`` of the name."""


def names(command: str) -> Names:
    found = _PLACEHOLDER.findall(command)
    return Names(
        frozenset(value for value, _, _ in found if value),
        frozenset(option.replace("-", "_") for _, _, option in found if option),
    )


def expected(command: str) -> frozenset[str]:
    """The names of ``{name}`` that a value is missing for, without doubt: those in words of the shell.

    In a program within the command (``python -c``, awk's, a here-document) ``{name}`` may be its own.
    """
    words = "".join(_words(command.replace("\\\n", "  ")))
    found = _PLACEHOLDER.finditer(words)
    return frozenset(each[1] for each in found if each[1] and words[: each.start()][-1:] not in _OTHERS)


def _words(command: str) -> Iterator[str]:
    """The command without what is quoted, unless that is a mere word: shlex.join quotes ``--lr={lr}``."""
    end = 0
    for match in _QUOTED.finditer(command):
        yield command[end : match.start()]
        end = match.end()
        quoted = match["single"] or match["double"] or ""
        line = command[: match.start()].rpartition("\n")[2]
        yield quoted if _WORD.fullmatch(quoted) and not _AWK.search(line) else " "
    yield command[end:]


def filled(command: str, values: Mapping[str, str], *, partly: bool = False) -> str:
    """The command with ``{name}`` as the value, quoted for a shell, and ``{--name}`` as ``--name value``.

    Without a value ``{name}`` stays as it is, and ``{--name}`` goes: the program has its own default.
    ``partly``: it stays, too, as values are to come.
    """

    def one(match: re.Match[str]) -> str:
        value, dashes, option = match.groups()
        if value:
            return shlex.quote(values[value]) if value in values else match[0]
        name = option.replace("-", "_")
        return f"{dashes}{option} {shlex.quote(values[name])}" if name in values else match[0] * partly

    return _PLACEHOLDER.sub(one, command)
