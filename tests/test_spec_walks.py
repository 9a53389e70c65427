"""Random edits of the shipped specs, each planned and applied: the plan says what apply does.

Real Terraform and provider, the embedded AWS. What judges them is tested first, on states made by hand. These
are short walks; ``invoke bench --only lifecycle`` takes long ones, from other seeds each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from permissions.recorded import recording

from benchmarks.lifecycle.edits import EDITS
from benchmarks.lifecycle.project import Project
from benchmarks.lifecycle.walk import Resource, unnamed, untruths, walk
from infra.commands.environment import Environment, load_project
from infra.drive import localaws
from infra.errors import SpecError

ROOT = Path(__file__).parents[1]


def a(address: str, identifier: str = "x-1", **values: Any) -> Resource:
    return Resource(address, address.split(".")[-2], identifier, {"id": identifier, **values})


def by_address(*resources: Resource) -> dict[str, Resource]:
    return {resource.address: resource for resource in resources}


def change(address: str, action: str, previous: str | None = None, **after: Any) -> dict[str, Any]:
    attributes = [{"path": path, "before": None, "after": value} for path, value in after.items()]
    return {"address": address, "action": action, "previous_address": previous, "attributes": attributes}


VPC = "module.a.aws_vpc.this"


@pytest.mark.parametrize(
    ("changes", "before", "after", "wrong"),
    [
        ([], [], [], 0),
        ([change(VPC, "create")], [], [a(VPC)], 0),
        ([], [], [a(VPC)], 1),
        ([change(VPC, "delete")], [a(VPC)], [], 0),
        ([], [a(VPC)], [], 1),
        ([change(VPC, "update")], [a(VPC)], [], 1),
        ([change(VPC, "delete")], [a(VPC)], [a(VPC)], 1),
        ([], [a(VPC)], [a(VPC, "x-2")], 1),
        ([change(VPC, "replace")], [a(VPC)], [a(VPC, "x-2")], 0),
        ([change(VPC, "update", size=2)], [a(VPC, size=1)], [a(VPC, size=2)], 0),
        ([change(VPC, "update", size=2)], [a(VPC, size=1)], [a(VPC, size=1)], 1),
        ([change(VPC, "update", of=[{"a": 1, "b": None}])], [a(VPC)], [a(VPC, of=[{"a": 1, "b": 2}])], 0),
        ([change(VPC, "update", of=[{"a": 1}])], [a(VPC)], [a(VPC, of=[{"a": 2}])], 1),
        ([change(VPC, "update", of=[1, 2])], [a(VPC)], [a(VPC, of=[2, 1])], 0),
        ([change(VPC, "update", of=[1])], [a(VPC)], [a(VPC, of=[1, 1])], 1),
        ([change(VPC, "no-op", previous="module.b.aws_vpc.this")], [a("module.b.aws_vpc.this")], [a(VPC)], 0),
        ([], [a("module.b.aws_vpc.this")], [a(VPC)], 2),
    ],
)
def test_what_the_plan_did_not_say_is_found(
    changes: list[Any], before: list[Resource], after: list[Resource], wrong: int
) -> None:
    assert len([*untruths({"changes": changes}, by_address(*before), by_address(*after))]) == wrong


@pytest.mark.parametrize(
    ("named", "count"), [((), 1), ((VPC,), 0), (("module.a",), 0), (("module.b",), 1), (("aws_vpc.this",), 1)]
)
def test_what_goes_without_being_named_is_found(named: tuple[str, ...], count: int) -> None:
    subnet = a("module.a.aws_subnet.this")
    assert len([*unnamed(by_address(a(VPC), subnet), {}, named)]) == count


def test_a_move_loses_nothing() -> None:
    before, after = by_address(a("module.b.aws_vpc.this")), by_address(a(VPC))
    assert [*unnamed(before, after, ())] == []


@pytest.mark.parametrize("environment", ["minimal", "local", "research"])
def test_each_edit_gives_a_spec_that_is_sound_or_refused_in_words(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each edit is possible somewhere, and five in a row are no trouble for whoever reads the spec."""
    project = Project.copied(tmp_path, environment)
    monkeypatch.chdir(tmp_path)
    shipped = yaml.safe_dump(project.spec())
    sound: set[str] = set()
    codes: set[str] = set()
    for seed in range(30):
        random, spec = Random(seed), yaml.safe_load(shipped)
        names = random.sample(list(EDITS), 5)
        made = [name for name in names if EDITS[name](spec, random)]
        project.write(spec)
        try:
            load_project(Environment(environment))
        except SpecError as refused:
            codes.update(problem.code for problem in refused.problems)
        else:
            sound.update(made)
    assert "" not in codes
    possible = {name for name, edit in EDITS.items() if edit(yaml.safe_load(shipped), Random(0))}
    assert possible <= sound


WALKS: Mapping[str, tuple[str, list[list[str]]]] = {
    # Many edits in few steps: an apply takes what its longest wait takes, however much it does.
    "a region and a gateway come and go": (
        "minimal",
        [
            ["add_site", "add_pool", "add_user", "add_storage", "change_gateway"],
            [
                *("remove_site", "reorder_sites", "add_zone", "reorder_zones", "change_gateway"),
                *("rename_pool", "change_market", "grow_pool", "add_image", "remove_user"),
            ],
        ],
    ),
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_through_edits(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environment, steps = WALKS[name]
    project = Project.copied(tmp_path, environment)
    aws = localaws.start(project.build / "state/aws", environment)
    try:
        with recording(aws, f"{environment}-walk", update=request.config.getoption("--update-golden")):
            walked = walk(project, 1, steps)
        assert not walked.refused
    finally:
        project.run("local.down")
