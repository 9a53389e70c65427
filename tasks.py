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


def _lock_file(spec_file: Path) -> Path:
    return spec_file.with_suffix(".lock.yaml")


def _print(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        sys.stderr.write(f"{problem}\n")


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
        _print(problems)
        errors = sum(problem.fatal for problem in problems)
        others = len(problems) - errors
        verdict = "is sound" if sound else f"has {errors} error{'s' * (errors != 1)}"
        rest = f", {others} other finding{'s' * (others != 1)}" if others else ""
        sys.stdout.write(f"{path} {verdict}{rest}\n")
    if not sound:
        raise Exit(code=1)


@task(help={**ENV_HELP, "as-json": "print the blocks as a JSON object, owner to block"})
def addresses(_: Context, env: str = "", as_json: bool = False) -> None:
    """Show the whole address plan as a tree. Nothing is written: `invoke plan` keeps new blocks.

    Example: invoke addresses --env research
    """
    from infra.errors import SpecError
    from infra.load import load
    from infra.resolve.addresses import plan_addresses
    from infra.resolve.lockfile import parse
    from infra.resolve.usage import Node, tree

    path = _spec_file(env)
    lock_file = _lock_file(path)
    try:
        lock = parse(lock_file.read_text(encoding="utf-8") if lock_file.exists() else "", str(lock_file))
        plan = plan_addresses(load(path).spec, lock)
    except SpecError as error:
        _print(tuple(error.problems))
        raise Exit(code=1) from None
    if as_json:
        blocks = {owner: str(block) for owner, block in plan.blocks.items()}
        sys.stdout.write(json.dumps(blocks, indent=2) + "\n")
        return

    def show(node: Node, depth: int) -> None:
        name = "  " * depth + (node.owner if depth < 2 else node.owner.rsplit("/", 1)[-1])
        use = f"{node.used:>12,} of {node.size:,} used" if node.children else f"{node.size:>12,} addresses"
        sys.stdout.write(f"{name:<44} {node.block!s:<18} {node.source:<10} {use}\n")
        for child in node.children:
            show(child, depth + 1)

    for root in tree(plan):
        show(root, 0)


@task
def schema(_: Context) -> None:
    """Print the JSON Schema of a spec, for completion and hover in editors.

    Example: invoke schema > environments/spec.schema.json
    """
    from infra.spec.reference import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
