"""Which database programs of this machine are given: never one that the MLflow they have refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from causeway.job import Job
from causeway.tracking import here
from causeway.tracking.record import is_name


def environment_with(folder: Path, version: str) -> Path:
    """A virtual environment that has this MLflow; its ``bin``."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (programs / "python3").write_text("#!/bin/sh\n")
    (programs / "python3").chmod(0o755)
    package = folder / "lib/python3.12/site-packages/mlflow"
    package.mkdir(parents=True)
    (package / "version.py").write_text(f'import re\n\nVERSION = "{version}"\n')
    return programs


@pytest.mark.parametrize(
    ("made", "has", "given"),
    [
        (None, "3.9.0", here.DATABASE),  # nobody, or a program, made it
        ("3.17.2", "3.17.0", here.DATABASE),
        ("3.17.2", "3.9.0", here.PROGRAMS),
        ("3.17.2", "2.22.1", here.PROGRAMS),
        ("3.17.2", None, here.PROGRAMS),
    ],
)
@pytest.mark.parametrize("command", ["python3 train.py", "set -e\npython3 -m train 'a b'", "{bin}/python3 x"])
def test_a_program_gets_a_database_that_its_mlflow_takes(
    tmp_path: Path, made: str | None, has: str | None, given: str, command: str
) -> None:
    programs = environment_with(tmp_path / "venv", has) if has else tmp_path / "none"
    folder = tmp_path / "causeway/runs/toy-1"
    folder.mkdir(parents=True)
    place = here.place_of(folder.parent, "toy")
    place.mkdir(parents=True)
    if made:
        (place / here.OURS).write_text(json.dumps({"version": made}))
    job = Job.model_validate({"name": "toy", "run": command.replace("{bin}", str(programs))})
    found = here.environment(job, folder, {"PATH": str(programs)})
    assert found["MLFLOW_TRACKING_URI"] == f"sqlite:///{place / given}"
    assert here.environment(job, folder, {"MLFLOW_TRACKING_URI": "http://mine"}) == {}
    packaged = job.model_copy(update={"python": "requirements.txt"})
    other = here.environment(packaged, folder, {"PATH": str(programs)})["MLFLOW_TRACKING_URI"]
    assert other.endswith(here.PROGRAMS if made else here.DATABASE)


def test_what_programs_of_a_name_log_to_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    place = here.place_of(runs, "toy")
    assert here.database_of(runs, "toy") == place / here.DATABASE
    place.mkdir(parents=True)
    for each in (here.PROGRAMS, here.DATABASE):
        (place / each).touch()
    os.utime(place / here.DATABASE, (1, 1))
    assert here.database_of(runs, "toy") == place / here.PROGRAMS == here.newest(runs, None)
    assert here.newest(runs, "other-1") is None


def test_names_that_mlflow_takes() -> None:
    right = ["loss", "train/loss", "loss at 3", "a:b", "größe"]
    wrong = ["", "loss!", "a//b", "/a", "../a", ".", "a\nb", "x" * 251, "loss@5"]
    assert [name for name in [*right, *wrong] if is_name(name)] == right
