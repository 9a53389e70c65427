r"""Replaces ``{name}`` and ``{--name}`` in commands.

``${name}``, ``{{name}}`` and ``\{name}``, which is ``{name}`` to a shell, are not placeholders.
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
"""Characters before a ``{`` of other programs: ``@{u}`` of git, ``%{http_code}`` of curl, ``#{x}`` of
tmux."""


class Names(NamedTuple):
    """The names of a command's placeholders."""

    values: frozenset[str]
    """Names written as ``{name}``."""
    options: frozenset[str]
    """Names written as ``{--name}``; a ``-`` in an option is a ``_`` in the name."""


def names(command: str) -> Names:
    found = _PLACEHOLDER.findall(command)
    return Names(
        frozenset(value for value, _, _ in found if value),
        frozenset(option.replace("-", "_") for _, _, option in found if option),
    )


def expected(command: str) -> frozenset[str]:
    """Return the ``{name}`` placeholders that certainly need a value: those in words of the shell.

    In a program within the command (``python -c``, awk, a here-document) ``{name}`` may be part of the
    program.
    """
    words = "".join(_words(command.replace("\\\n", "  ")))
    found = _PLACEHOLDER.finditer(words)
    return frozenset(each[1] for each in found if each[1] and words[: each.start()][-1:] not in _OTHERS)


def _words(command: str) -> Iterator[str]:
    """Yield the command without quoted text, except for simple words: shlex.join quotes ``--lr={lr}``."""
    end = 0
    for match in _QUOTED.finditer(command):
        yield command[end : match.start()]
        end = match.end()
        quoted = match["single"] or match["double"] or ""
        line = command[: match.start()].rpartition("\n")[2]
        yield quoted if _WORD.fullmatch(quoted) and not _AWK.search(line) else " "
    yield command[end:]


def filled(command: str, values: Mapping[str, str], *, partly: bool = False) -> str:
    """Replace ``{name}`` by the value, quoted for a shell, and ``{--name}`` by ``--name value``.

    Without a value, ``{name}`` stays, and ``{--name}`` is removed: the program has a default. ``partly``: it
    stays, too, as more values will follow.
    """

    def one(match: re.Match[str]) -> str:
        value, dashes, option = match.groups()
        if value:
            return shlex.quote(values[value]) if value in values else match[0]
        name = option.replace("-", "_")
        return f"{dashes}{option} {shlex.quote(values[name])}" if name in values else match[0] * partly

    return _PLACEHOLDER.sub(one, command)
