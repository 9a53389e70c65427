"""``{name}`` and ``{--name}`` of commands, and what takes their place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"(?<![${])\{(?:([A-Za-z_][A-Za-z0-9_]*)|(--?)([A-Za-z_][A-Za-z0-9_-]*))\}(?!\})")


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
