"""Faults of the form and findings of the rules come out together, and none is invented.

The walk breaks the form of shipped specs, one place at a time. That fault is all that is wrong with them, so
nothing else may be found that is not found in it as it ships.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from checks.breaking import CASES, Findings, cases

from infra.errors import Path as SpecPath
from infra.errors import Problem, SpecError
from infra.load import load
from infra.load.inherit import read

SHIPPED = ("minimal", "local", "machines", "research")


def found(path: Path) -> tuple[Problem, ...]:
    try:
        return load(path).problems
    except SpecError as error:
        return tuple(error.problems)


def leaves(value: Any, path: SpecPath = ()) -> Iterator[SpecPath]:
    """Every place, also of mappings and lists."""
    if path:
        yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        yield from leaves(child, (*path, step))


def parent(values: Any, path: SpecPath) -> Any:
    for step in path[:-1]:
        values = values[step]
    return values


def mistyped(values: Any, path: SpecPath) -> None:
    """A list where one value is expected, or one value where a list or a mapping is."""
    place = parent(values, path)
    place[path[-1]] = "a b: c" if isinstance(place[path[-1]], dict | list) else ["a"]


def misspelt(values: Any, path: SpecPath) -> None:
    """The key without its last letter, which the place keeps."""
    place = parent(values, path)
    if isinstance(path[-1], str):
        items = {(key[:-1] + "_" if key == path[-1] else key): value for key, value in place.items()}
        place.clear()
        place.update(items)


def missing(values: Any, path: SpecPath) -> None:
    if isinstance(path[-1], str):
        del parent(values, path)[path[-1]]


def written(folder: Path, values: Any) -> Path:
    file = folder / "lab.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return file


def said(problems: tuple[Problem, ...]) -> set[tuple[str, str, str]]:
    return {(problem.code, problem.path, problem.message) for problem in problems}


def plain(name: str) -> Any:
    values = read(Path(f"environments/{name}.yaml"))[0].plain()
    values.pop("extends", None)
    return values


@pytest.mark.parametrize("break_form", [mistyped, misspelt, missing])
@pytest.mark.parametrize("name", SHIPPED)
def test_a_fault_of_the_form_alone_brings_no_finding_of_a_rule(
    name: str, break_form: Any, tmp_path: Path
) -> None:
    shipped = plain(name)
    before = said(found(written(tmp_path, shipped)))
    places = sorted(leaves(shipped), key=str)
    invented = {}
    for path in Random(1).sample(places, min(30, len(places))):
        values = deepcopy(shipped)
        break_form(values, path)
        after = found(written(tmp_path, values))
        if any(problem.code.startswith("SPEC") for problem in after):
            rules = [problem for problem in after if not problem.code.startswith("SPEC")]
            if more := said(tuple(rules)) - before:
                invented[path] = more
    assert invented == {}


FAULTS = (
    ("owner: [x]", "SPEC003"),
    ("ownr: x", "SPEC002"),
    ("kubernetes: {snapshots: many}", "SPEC003"),
    ("pools: {added: {image: cpu, regions: {us-west-2: {max: 1}}}}", "SPEC004"),
    ("access: {users: {added: {ssh_keys: one}}}", "SPEC003"),
    ("storage: {efs: {Big_Disk: {path: /srv/a}}}", "SPEC003"),
    ("tags: {a: b, a: c}", "SPEC005"),
)


CONNECTED = {
    "owner": {"NAME007"},
    "pools": {"QUOTA004", "SITE023", "WORK002", "WORK003"},
    "storage": {"SITE023"},
}
"""Rules that stand elsewhere and ask this part too: what is half written there has any size."""


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=lambda number: FAULTS[number][1])
def test_a_fault_of_the_form_hides_no_rule_of_another_part(number: int, tmp_path: Path) -> None:
    fault, code = FAULTS[number]
    tried = 0
    for case in cases()[number :: len(FAULTS)]:
        own = case.spec.startswith("version:") or case.code.startswith("SPEC") or not case.at
        part = fault.partition(":")[0]
        if own or case.at.partition(".")[0] == part or case.code in CONNECTED.get(part, ()):
            continue
        base = tmp_path / "base.yaml"
        base.write_text(f"{case.spec}\nextends: {CASES / 'good.yaml'}\n")
        problems = Findings(tmp_path).of(f"version: 1\nextends: {base}\n{fault}")
        places = {problem.code: problem.position for problem in problems}
        assert {case.code, code} <= places.keys(), case
        assert all(places.values())
        tried += 1
    assert tried > 10
