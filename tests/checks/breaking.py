"""Specs that each break one rule: ``cases/*.yaml``, one file a family.

A case says the code, the path it is found at, and the change to ``cases/good.yaml`` that causes it:
``CODE PATH = VALUE`` where that is another value at this path, else ``CODE PATH:`` and what an environment
that extends the good one would say. ``# here`` marks the line that the finding must point to.
``@9 of user-{n}@`` stands for nine entries of a list: ``{n}`` counts from 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from infra.errors import Problem, SpecError, undotted
from infra.load import load

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    code: str
    at: str
    spec: str

    @property
    def line(self) -> int | None:
        """The line that is marked, from 1."""
        marked = [number for number, line in enumerate(self.spec.splitlines(), 1) if line.endswith("# here")]
        return marked[0] if marked else None


@cache
def cases() -> tuple[Case, ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(
        _case(case)
        for file in sorted(CASES.glob("*.yaml"))
        if file.stem != "good"
        for case in yaml.load(file.read_text(), loader)
    )


def _case(written: str | dict[str, str]) -> Case:
    if isinstance(written, str):
        place, _, value = written.partition(" = ")
        code, _, at = place.partition(" ")
        for step in reversed(undotted(at)):
            value = f"[{value}]" if isinstance(step, int) else f"{{{step}: {value}}}"
        return Case(code, at, f"{value[1:-1]}  # here")
    [(place, spec)] = written.items()
    code, _, at = place.partition(" ")
    return Case(code, at, re.sub(r"@(\d+) of (.*?)@", _many, spec))


def _many(match: re.Match[str]) -> str:
    return ", ".join(match[2].replace("{n}", str(n)) for n in range(1, int(match[1]) + 1))


@dataclass(frozen=True)
class Findings:
    """What ``load`` says about a spec, whether it takes it or not."""

    folder: Path

    def of(self, spec: str) -> list[Problem]:
        """``spec`` extends the good one unless it states a version of its own."""
        file = self.folder / "case.yaml"
        extends = "" if spec.startswith("version:") else f"\nextends: {CASES / 'good.yaml'}\n"
        file.write_text(spec + extends)
        try:
            return list(load(file).problems)
        except SpecError as error:
            return list(error.problems)
