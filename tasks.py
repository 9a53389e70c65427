"""The command line: composes the four verbs and turns our errors into exit codes. Nothing else does.

Heavy libraries are imported where they are used: `invoke --list` must answer at once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

if TYPE_CHECKING:
    from infra.errors import Problem

ENVIRONMENTS = Path("environments")
DEFAULT = "local"
ENV_HELP = {"env": "the environment, a file in environments/ (default: INFRA_ENV, else local)"}


def _spec_file(env: str) -> Path:
    """The file of an environment. Exits with the ones there are when it does not exist."""
    from infra.nearest import nearest

    name = env or os.environ.get("INFRA_ENV") or DEFAULT
    path = ENVIRONMENTS / f"{name}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in ENVIRONMENTS.glob("*.yaml") if "." not in file.stem)
        near = nearest(name, known)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(known)}"
        raise Exit(f"{path}: no such environment; {hint}", code=1)
    return path


def _as_json(problems: tuple[Problem, ...]) -> str:
    return json.dumps(
        [
            {
                "code": problem.code,
                "level": problem.level,
                "path": problem.path,
                "message": problem.message,
                "hint": problem.hint,
                "file": problem.position.file if problem.position else None,
                "line": problem.position.line if problem.position else None,
                "waived": problem.waived or None,
            }
            for problem in problems
        ],
        indent=2,
    )


@task(help={**ENV_HELP, "as-json": "print the findings as a JSON list"})
def validate(_: Context, env: str = "", as_json: bool = False) -> None:
    """Check an environment's spec and name everything that is wrong with it.

    Example: invoke validate --env research
    """
    from infra.errors import SpecError
    from infra.load import load

    path = _spec_file(env)
    try:
        problems = load(path).problems
        sound = True
    except SpecError as error:
        problems, sound = tuple(error.problems), False
    if as_json:
        sys.stdout.write(_as_json(problems) + "\n")
    else:
        for problem in problems:
            sys.stderr.write(f"{problem}\n")
        errors = sum(problem.fatal for problem in problems)
        others = len(problems) - errors
        verdict = "is sound" if sound else f"has {errors} error{'s' * (errors != 1)}"
        rest = f", {others} other finding{'s' * (others != 1)}" if others else ""
        sys.stdout.write(f"{path} {verdict}{rest}\n")
    if not sound:
        raise Exit(code=1)
