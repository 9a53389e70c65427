"""Errors, whose text is all that the user sees.

::

    CausewayError            exit code 1
    ├── InputError           2: the job file, an option or the code is invalid
    ├── UnreachableError     3: the cluster or the store does not answer
    ├── DetachedError        130: Ctrl-C; the text tells whether the run continues
    └── DeclinedError        1: the user declined
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One problem in the user's input."""

    where: str
    """``job.yaml:7``, or the option: ``--gpus``."""
    field: str
    """``gpus.model``; empty for the whole input."""
    what: str
    hint: str = ""

    def __str__(self) -> str:
        subject = f"{self.where}: {self.field}" if self.field else self.where
        return f"{subject}: {self.what}" + (f"; {self.hint}" if self.hint else "")


class CausewayError(Exception):
    """An error whose text is all that a user needs. ``exit_code``: the process's."""

    exit_code = 1


class InputError(CausewayError):
    """All problems in the input, together."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class UnreachableError(CausewayError):
    """The cluster or the store does not answer."""

    exit_code = 3


class DetachedError(CausewayError):
    """The user pressed Ctrl-C."""

    exit_code = 130


class DeclinedError(CausewayError):
    """The user was asked, and declined."""
