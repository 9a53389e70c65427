"""Files that released versions wrote: read today, they say at least what they said then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from released import formats

from infra import __version__
from infra.load import load
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import parse

RELEASES = sorted(path.parent for path in formats.FOLDER.glob("*/meaning.json"))
FILES = [
    (release, name) for release in RELEASES for name in json.loads((release / "meaning.json").read_text())
]


def of(kind: str) -> pytest.MarkDecorator:
    """For each file of each release whose name begins so; those of a format for none."""
    rows = [
        row for row in FILES if (row[1].startswith(kind) if kind else "/" not in row[1] and row[1] != "names")
    ]
    return pytest.mark.parametrize(
        ("release", "name"), rows, ids=[f"{one.name}/{name}" for one, name in rows]
    )


def missing(then: Any, now: Any, path: str = "") -> list[str]:
    """The paths at which ``now`` does not say what ``then`` does; what it says besides is new."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [
            each
            for key, value in then.items()
            for each in (missing(value, now[key], f"{path}.{key}") if key in now else [f"{path}.{key}"])
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [each for at, (old, new) in pairs for each in missing(old, new, f"{path}[{at}]")]
    return [] if then == now else [f"{path}: {then!r} is {now!r}"]


def said(release: Path, name: str) -> Any:
    return json.loads((release / "meaning.json").read_text(encoding="utf-8"))[name]


def plain(value: Any) -> Any:
    """As JSON has it: tuples are lists."""
    return json.loads(json.dumps(value))


def test_there_are_files_of_this_version() -> None:
    """`python tests/released/write.py` writes them; a format that outlives a version has a file."""
    here = formats.FOLDER / __version__
    assert {*formats.FORMATS} <= {path.name for path in here.iterdir()}
    examples = {path.name for path in formats.EXAMPLES.iterdir()}
    assert examples <= {path.name for path in (here / "jobs").iterdir()}


@of("")
def test_a_record_says_what_it_said(release: Path, name: str) -> None:
    now = plain(formats.FORMATS[name].read(release / name))
    assert missing(said(release, name), now) == []


@of("jobs/")
def test_a_job_file_means_what_it_meant(release: Path, name: str) -> None:
    assert missing(said(release, name), formats.read_job(release / name)) == []


@of("names")
def test_labels_keep_their_names(release: Path, name: str) -> None:
    assert {*said(release, name)} <= {*formats.names()}


@of("specs/")
def test_a_spec_is_still_valid_and_nothing_moves(release: Path, name: str) -> None:
    folder = (release / name).parent
    lock = folder / "lock.yaml"
    assert missing(said(release, name), formats.lock_of(lock)) == []
    loaded = load(folder / "spec.yaml")
    assert [problem for problem in loaded.problems if problem.fatal] == []
    kept = parse(lock.read_text(encoding="utf-8"), str(lock))
    _, grown = resolve(loaded.spec, kept, folder.name)
    assert missing(formats.plain(kept), formats.plain(grown)) == []
