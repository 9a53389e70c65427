"""The whole output of a few specs, as it was when somebody last looked at it."""

from __future__ import annotations

import os
import subprocess
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

import pytest
from golden_clusters import with_masters
from golden_folders import GOLDEN as FOLDER
from golden_folders import (
    LISTING,
    LOCK,
    OUT,
    SPEC,
    Selection,
    assert_golden,
    differences,
    kept_files,
    parts,
    rendered,
    scenarios,
    selections,
    update,
)

from infra.drive.engine import find_engine

MOST_LINES = 1200

MINIMAL = """\
version: 1
name: tiny
domain: tiny.internal
sites:
  us-west-2: {kind: aws, zones: [us-west-2a]}
images:
  cpu: {}
"""


@pytest.mark.parametrize("scenario", scenarios())
def test_golden(scenario: str, request: pytest.FixtureRequest) -> None:
    assert_golden(FOLDER / scenario, rewrite=request.config.getoption("--update-golden"))


def test_no_scenario_is_lost() -> None:
    assert (
        {"minimal", "local", "machines", "research", "torture", "transit"}
        <= set(scenarios())
        == set(selections())
    )


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A golden folder, written just now."""
    golden = tmp_path / "tiny"
    golden.mkdir()
    (golden / SPEC).write_text(MINIMAL)
    with pytest.raises(AssertionError, match="tiny was rewritten"):
        assert_golden(golden, rewrite=True)
    return golden


def test_what_was_rewritten_is_golden(folder: Path) -> None:
    assert_golden(folder, rewrite=False)
    assert_golden(folder, rewrite=True)
    assert (folder / OUT / "cluster.json").exists()
    assert f"{'kept':<23} cluster.json\n" in (folder / LISTING).read_text()


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        (f"{OUT}/cluster.json", "{}\n", "out/cluster.json differs"),
        (f"{OUT}/terraform/old.tf", "", "out/terraform/old.tf is not to be kept"),
        (LISTING, "", "files.txt differs"),
        (LOCK, "version: 1\n", "lock.yaml differs"),
        (f"{OUT}/cluster.json", None, "out/cluster.json is missing"),
    ],
)
def test_every_difference_is_told_and_then_mended(
    folder: Path, path: str, text: str | None, told: str
) -> None:
    if text is None:
        (folder / path).unlink()
    else:
        (folder / path).write_text(text)
    with pytest.raises(AssertionError, match=told):
        assert_golden(folder, rewrite=False)
    with pytest.raises(AssertionError, match="rewritten"):
        assert_golden(folder, rewrite=True)
    assert_golden(folder, rewrite=False)


def test_copies_of_static_files_are_listed_and_not_kept() -> None:
    root = Path(__file__).parents[2] / "templates"
    static = "terraform/modules/network/vpc.tf"
    text = (root / static).read_text()
    kept = kept_files({static: text, "a.txt": "a"}, "")
    assert lines(kept) == ["kept a.txt", f"copied {static}"]
    assert set(kept) == {LOCK, LISTING, f"{OUT}/a.txt"}
    changed = kept_files({static: f"{text}\n"}, "")
    assert changed[f"{OUT}/{static}"] == f"{text}\n"


def lines(kept: dict[str, str]) -> list[str]:
    """The lines of a listing, each with one space."""
    return [" ".join(line.split()) for line in kept[LISTING].splitlines()]


def test_what_is_not_kept_is_listed_with_its_digest() -> None:
    files = {"a/b": "1", "a/c": "2", "d": "3"}
    kept = kept_files(files, "", Selection(("a/*",), ("*c",)))
    digests = {text: f"sha256:{sha256(text.encode()).hexdigest()[:16]}" for text in files.values()}
    assert lines(kept) == ["kept a/b", f"{digests['2']} a/c", f"{digests['3']} d"]
    assert set(kept) == {LOCK, LISTING, f"{OUT}/a/b"}


def test_what_the_base_keeps_is_not_kept_again() -> None:
    kept = kept_files(
        {"a": "1", "b": "2", "c": "3"}, "", Selection(("[ab]",)), {"a": "1", "b": "1", "c": "3"}
    )
    assert lines(kept) == ["minimal a", "kept b", "minimal c"]
    assert set(kept) == {LOCK, LISTING, f"{OUT}/b"}


def test_a_split_file_is_kept_in_parts_and_listed_with_its_digest() -> None:
    text = '{"a": 1, "of": {"x": {"é": 2}, "y": []}}'
    kept = kept_files({"t/v.json": text}, "", Selection(split={"t/v.json": "of"}))
    assert lines(kept) == [f"sha256:{sha256(text.encode()).hexdigest()[:16]} t/v.json"]
    assert {path: kept[path] for path in kept if path.startswith(OUT)} == {
        f"{OUT}/t/v.json": '{\n  "a": 1\n}\n',
        f"{OUT}/t/v.of/x.json": '{\n  "é": 2\n}\n',
        f"{OUT}/t/v.of/y.json": "[]\n",
    }


def test_stale_folders_go_with_their_last_file(tmp_path: Path) -> None:
    update(tmp_path, {f"{OUT}/a/b": "1", f"{OUT}/c": "2"})
    update(tmp_path, {f"{OUT}/c": "2"})
    assert not (tmp_path / OUT / "a").exists()
    assert differences(tmp_path, {f"{OUT}/c": "2"}) == []


def test_machines_alone_need_no_terraform() -> None:
    files, _ = rendered(FOLDER / "machines")
    assert {path.partition("/")[0] for path in files} == {"chef", "cluster.json"}


@pytest.mark.parametrize("name", with_masters())
def test_terraform_finds_every_root_valid_and_formatted(name: str, tmp_path: Path) -> None:
    files, _ = rendered(FOLDER / name)
    for path in (path for path in files if path.startswith("terraform/")):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(files[path], encoding="utf-8")
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1"}
    for command in (
        ["init", "-input=false", "-backend=false", "-no-color"],
        ["validate", "-no-color"],
        ["fmt", "-check", "-recursive"],
    ):
        ran = subprocess.run(
            [*find_engine().argv, *command],
            cwd=tmp_path / "terraform", env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
