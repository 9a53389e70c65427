"""The whole output of a few specs, as it was when somebody last looked at it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from golden_clusters import with_masters
from golden_folders import GOLDEN as FOLDER
from golden_folders import (
    assert_golden,
    parts,
    rendered,
    resolved,
    scenarios,
    selections,
)
from render.tools import run, write

from infra.drive.engine import find_engine

ENVIRONMENTS = Path(__file__).parents[2] / "environments"
MOST_LINES = 1200


@pytest.mark.parametrize("scenario", scenarios())
def test_golden(scenario: str, request: pytest.FixtureRequest) -> None:
    assert_golden(FOLDER / scenario, rewrite=request.config.getoption("--update-golden"))


def test_a_new_scenario_begins_with_a_spec_alone(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text((ENVIRONMENTS / "minimal.yaml").read_text("utf-8"), "utf-8")
    cluster, lock = resolved(tmp_path)
    assert cluster.regions
    assert lock.blocks


def test_each_scenario_says_what_it_is_for() -> None:
    assert set(scenarios()) == set(selections())


@pytest.mark.parametrize("scenario", scenarios())
def test_every_pattern_of_a_selection_chooses_something(scenario: str) -> None:
    files, _ = rendered(FOLDER / scenario)
    selection = selections()[scenario]
    patterns = [*selection.kept, *selection.hashed, *selection.split]
    paths = {
        *files,
        *(part for path, member in selection.split.items() for part in parts(path, files[path], member)),
    }
    assert [pattern for pattern in patterns if not any(fnmatchcase(path, pattern) for path in paths)] == []


def test_a_person_can_read_what_is_kept() -> None:
    """A file that is longer is hashed or split in ``kept.yaml``, or only one of its kind is kept."""
    lengths = {
        path: path.read_text(encoding="utf-8").count("\n") for path in FOLDER.rglob("*") if path.is_file()
    }
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("name", with_masters())
def test_terraform_finds_every_root_valid_and_formatted(name: str, tmp_path: Path) -> None:
    files, _ = rendered(FOLDER / name)
    write(tmp_path, {path: text for path, text in files.items() if path.startswith("terraform/")})
    for command in (
        ["init", "-input=false", "-backend=false", "-no-color"],
        ["validate", "-no-color"],
        ["fmt", "-check", "-recursive"],
    ):
        run(*find_engine().argv, *command, folder=tmp_path / "terraform")
