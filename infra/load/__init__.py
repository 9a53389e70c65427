"""Loads a spec, and reports all problems together, each with file and line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.catalogue import limits
from infra.catalogue.limits import NAMES
from infra.checks import examine
from infra.collector import paused
from infra.errors import Path as SpecPath
from infra.errors import Position, Problem, SpecError, undotted
from infra.load.inherit import read
from infra.load.source import TWICE, Value
from infra.load.structure import Structure, validate
from infra.schema import Spec

__all__ = ["ENVIRONMENT_LENGTH", "Loaded", "load"]

ENVIRONMENT_LENGTH: Final = NAMES["iam-role"].characters - len("-access-gateway")
"""Maximum characters of an environment's name: the longest name that is not shortened is that of a role of
machines."""

_ENVIRONMENT: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_KEPT: Final = {"internal": "the names of its own load balancers", "sg": "the ids of security groups"}
"""Prefixes that AWS reserves (ELB API Reference, CreateLoadBalancer; EC2 API Reference,
CreateSecurityGroup)."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid spec, the positions of its values, and warnings."""

    spec: Spec
    root: Value
    problems: tuple[Problem, ...]
    """Warnings, and errors that were waived."""

    def position(self, path: SpecPath) -> Position:
        """The position of the value at ``path``, or of the nearest one above it."""
        return self.root.at(path).position

    def origins(self) -> Iterator[tuple[SpecPath, str, Position]]:
        """Each value in the file, as text, with its position."""
        for path, value in self.root.leaves():
            if value.content is not None:
                yield (
                    path,
                    value.content if isinstance(value.content, str) else str(value.plain()),
                    value.position,
                )


def load(path: Path) -> Loaded:
    """The spec of a file and everything that it extends.

    Raises ``SpecError`` with all problems if one of them is an error without a waiver.
    """
    with paused():
        return _load(path)


def _load(path: Path) -> Loaded:
    root, form = read(path)
    if any(problem.code != TWICE for problem in form):
        raise SpecError(form)
    if not root.content:
        raise SpecError([_empty(root)])
    twice = [undotted(problem.path) for problem in form]
    # Mappings whose keys are duplicated are merged.
    unknown = {place: () for place in twice if not isinstance(root.at(place).content, dict)}
    structure = validate(root, unknown)
    problems = [*form, *structure.problems, *_file_name(path, root)]
    if structure.spec is None:
        raise SpecError(sorted([*problems, *_certain(structure)], key=_order))
    problems += examine(structure.spec, lambda where: root.at(where).position)
    if any(problem.fatal for problem in problems):
        raise SpecError(sorted(problems, key=_order))
    return Loaded(structure.spec, root, tuple(problems))


def _certain(structure: Structure) -> Collection[Problem]:
    """Findings of rules that hold however the structural faults are fixed."""

    def certain(problem: Problem) -> bool:
        path = undotted(problem.path)
        return not any(path[: len(place)] == place for place in structure.unknown)

    common: list[Problem] | None = None
    for spec in structure.completions():
        found = examine(spec, lambda where: structure.root.at(where).position)
        common = [problem for problem in (found if common is None else common) if problem in found]
        common = [problem for problem in common if certain(problem)]
        if not common:
            break
    return common or ()


def _empty(root: Value) -> Problem:
    hint = "start from environments/minimal.yaml, which has ten lines"
    return Problem("SPEC001", "", "an empty file", position=root.position, hint=hint)


def _file_name(path: Path, root: Value) -> list[Problem]:
    """Problems of the environment's name, which starts every name in AWS: bucket names must be lower-case."""
    name, most = path.stem, ENVIRONMENT_LENGTH
    if len(name) > most:
        message = f"{name} has {len(name)} characters; an environment's name has at most {most}"
    elif not _ENVIRONMENT.fullmatch(name):
        message = f"{name} is not lower-case letters, digits and single hyphens, starting with a letter"
    elif name.partition("-")[0] in _KEPT:
        first = name.partition("-")[0]
        message = f"{name} begins with {first}, which AWS keeps for {_KEPT[first]}"
    elif why := limits.refused_bucket_name(f"{name}-bucket"):
        message = f"{name} can't begin the names of buckets: {why}"
    else:
        return []
    return [
        Problem("NAME009", "", message, position=root.position, hint="rename the file, and its lock file")
    ]


def _order(problem: Problem) -> tuple[str, int, int, str]:
    position = problem.position or Position("", 0)
    return position.file, position.line, position.column, problem.code
