"""Checks a search across fields: its sampler and its parameters, its parameters and commands."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from causeway import placeholders
from causeway.errors import Problem
from causeway.search.command import ALL
from causeway.search.fields import FACTOR, RUNGS, Sweep
from causeway.search.space import Tree, always, dimensions, roots, size


def problems(sweep: Sweep, commands: Mapping[str, str]) -> Iterator[Problem]:
    """``commands``: field → command, ``{"run": …, "roles.ps.run": …}``. Places of fields are added later."""
    tree = sweep.parameters
    yield from _names(tree, "sweep.parameters")
    if sweep.sampler == "grid":
        for field, each in _fields(tree, "sweep.parameters"):
            if each.levels is None:
                yield _problem(
                    field,
                    "has infinitely many values, and grid tries all values",
                    "give float a step, list choices, or take sampler: random",
                )
    numbers = sum(not isinstance(each.values, tuple) for each in roots(tree))
    if sweep.sampler == "cmaes" and numbers < 2:
        what = f"cmaes needs two numbers that every trial has, and there {'is' if numbers == 1 else 'are'} "
        yield _problem("sweep.sampler", f"{what}{numbers or 'none'}", "sampler: tpe takes all kinds")
    yield from _commands(tree, commands)


def notes(sweep: Sweep) -> Iterator[str]:
    """Yield notes on what is allowed, but rarely intended."""
    stop, count = sweep.stop, size(sweep.parameters)
    square = (stop.factor or FACTOR) ** 2
    if stop.rule in RUNGS and sweep.trials < square:
        yield f"{stop.rule} needs trials to compare: {sweep.trials} are fewer than factor², {square}"
    if count is not None and count < sweep.trials:
        yield f"there are {count} combinations, and trials is {sweep.trials}: the search ends after {count}"
    if sweep.sampler == "grid" and count is not None and count > sweep.trials:
        left = count - sweep.trials
        yield f"the grid has {count} combinations, and trials is {sweep.trials}: {left} are never tried"
    nested = sorted({each.name for each in dimensions(sweep.parameters)} - _roots(sweep.parameters))
    if sweep.sampler in ("gp", "cmaes") and nested:
        yield f"{sweep.sampler} draws {', '.join(nested)} at random, as not every trial has them"
    if sweep.sampler == "gp" and stop.rule != "none":
        yield "gp learns only from trials that were not stopped; tpe and cmaes learn from all"


def _roots(tree: Tree) -> set[str]:
    return {each.name for each in roots(tree)}


def _fields(tree: Tree, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield each parameter with its dotted field in the file: ``sweep.parameters.opt.1.sgd.momentum``."""
    for each in roots(tree):
        field = f"{prefix}.{each.name}"
        yield field, each
        for index, branch in enumerate(each.branches):
            yield from _fields(branch, f"{field}.{index}.{each.level(index)}")


def _names(tree: Tree, prefix: str) -> Iterator[Problem]:
    """Report names that one trial would have twice. Two branches of one choice are never in the same
    trial."""
    for field, each in _fields(tree, prefix):
        if each.name == ALL:
            yield _problem(
                field, f"{{{ALL}}} is the placeholder for all parameters in a command", "choose another name"
            )
    yield from _twice(tree, prefix, frozenset())


def _twice(tree: Tree, prefix: str, taken: frozenset[str]) -> Iterator[Problem]:
    level = list(roots(tree))
    inner = {
        each.name: {one.name for branch in each.branches for one in dimensions(branch)} for each in level
    }
    below = Counter(name for names in inner.values() for name in names)
    for each in level:
        field = f"{prefix}.{each.name}"
        if each.name in taken:
            yield _problem(field, "a trial can have two parameters of this name", "rename one")
        others = {name for name in below if below[name] > 1} | {one.name for one in level}
        for index, branch in enumerate(each.branches):
            yield from _twice(branch, f"{field}.{index}.{each.level(index)}", taken | others)


def _commands(tree: Tree, commands: Mapping[str, str]) -> Iterator[Problem]:
    """Check that commands name each parameter, and nothing else."""
    known = {each.name for each in dimensions(tree)}
    every = always(tree)
    used: set[str] = set()
    for field, command in commands.items():
        found = placeholders.names(command)
        used |= found.values | found.options
        for name in sorted((found.values | found.options) - known - {ALL}):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"parameters are {', '.join(sorted(known))}"
            yield _problem(field, f"{{{name}}} is not a parameter of the sweep", hint)
        for name in sorted((found.values & known) - every):
            yield _problem(
                field,
                f"{{{name}}} has no value in trials without it",
                f"write {{--{name}}}: the option and its value, or nothing",
            )
    if ALL not in used:
        for field, each in _fields(tree, "sweep.parameters"):
            if each.name not in used:
                place = (
                    f"{{{each.name}}} or {{--{each.name}}}" if each.name in every else f"{{--{each.name}}}"
                )
                yield _problem(field, "no command uses it", f"write {place} where its value goes")


def _problem(field: str, what: str, hint: str) -> Problem:
    return Problem("", field, what, hint)
