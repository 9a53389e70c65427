"""Finding Terraform."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from drive.applying import apply_saved, in_state

from infra.drive import lifecycle
from infra.drive.engine import Engine, engines, find_engine, parse_version
from infra.drive.lifecycle import Job
from infra.errors import DriveError


def program(folder: Path, name: str, version: str) -> Path:
    """A program that says which version it is, as Terraform does."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\necho \'{{"terraform_version": "{version}"}}\'\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "parts"),
    [("1.6.0", (1, 6, 0)), ("1.12.0-beta1", (1, 12, 0)), ("1.9.2+ent", (1, 9, 2))],
)
def test_versions(text: str, parts: tuple[int, ...]) -> None:
    assert parse_version(text) == parts


def test_terraform_comes_before_tofu(tmp_path: Path) -> None:
    terraform = program(tmp_path, "terraform", "1.10.1")
    program(tmp_path, "tofu", "1.8.0")
    assert find_engine({"PATH": str(tmp_path)}) == Engine("terraform", "1.10.1", (str(terraform),))


def test_one_that_is_too_old_is_passed_over_and_reported(tmp_path: Path) -> None:
    old = program(tmp_path, "terraform", "1.5.7")
    tofu = program(tmp_path, "tofu", "1.8.0")
    assert find_engine({"PATH": str(tmp_path)}) == Engine("tofu", "1.8.0", (str(tofu),))
    (_, problem), (_, fine) = engines({"PATH": str(tmp_path)})
    assert re.fullmatch(rf"{old} .*1\.5\.7; 1\.6 .*", str(problem))
    assert isinstance(fine, Engine)


def test_the_one_that_was_asked_for(tmp_path: Path) -> None:
    program(tmp_path / "first", "terraform", "1.10.1")
    mine = program(tmp_path / "second", "my-tofu", "1.9.0")
    environ = {"PATH": str(tmp_path / "first"), "CAUSEWAY_ENGINE": str(mine)}
    assert find_engine(environ).argv == (str(mine),)


def test_one_that_was_asked_for_must_be_there_and_new_enough(tmp_path: Path) -> None:
    with pytest.raises(DriveError, match="/no/terraform"):
        find_engine({"PATH": "", "CAUSEWAY_ENGINE": "/no/terraform"})
    old = program(tmp_path, "terraform", "1.0.0")
    with pytest.raises(DriveError, match=r"1\.6 "):
        find_engine({"PATH": "", "CAUSEWAY_ENGINE": str(old)})


def test_a_program_that_is_no_terraform(tmp_path: Path) -> None:
    path = tmp_path / "terraform"
    path.write_text("#!/bin/sh\necho hello\n")
    path.chmod(0o755)
    with pytest.raises(DriveError, match=str(path)):
        find_engine({"PATH": "", "CAUSEWAY_ENGINE": str(path)})


EMBEDDED = [sys.executable, "-P", "-m", "infra.drive.embedded_terraform"]


def test_embedded_engine_is_the_last_resort() -> None:
    engine = find_engine({"PATH": ""})
    assert engine.name == "embedded"
    assert parse_version(engine.version) >= (1, 6)


def test_embedded_engine_keeps_streams_and_exit_codes_apart(tmp_path: Path) -> None:
    bad = subprocess.run([*EMBEDDED, "nonsense"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert bad.stdout == ""
    assert '"nonsense"' in bad.stderr


def test_embedded_engine_through_a_whole_life(make_job: Callable[..., Job]) -> None:
    engine = find_engine({"PATH": "", "CAUSEWAY_ENGINE": "embedded"})
    job = replace(make_job(), engine=engine)
    assert lifecycle.plan(job).plan.count("create") == 3
    apply_saved(job)
    assert not lifecycle.plan(job).plan.has_changes
    lifecycle.plan(job, destroy=True)
    apply_saved(job)
    assert in_state(job) == []


def test_embedded_engine_saves_its_state_when_it_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(
        'resource "terraform_data" "quick" {}\n'
        'resource "terraform_data" "slow" {\n'
        "  input = terraform_data.quick.id\n"
        '  provisioner "local-exec" {\n    command = "touch started; sleep 60"\n  }\n}\n'
    )
    subprocess.run([*EMBEDDED, "init"], cwd=tmp_path, check=True, capture_output=True)
    running = subprocess.Popen(
        [*EMBEDDED, "apply", "-auto-approve", "-no-color"],
        cwd=tmp_path,
        env={**os.environ, "TF_IN_AUTOMATION": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while not (tmp_path / "started").exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate()
    assert running.returncode == 1
    assert "Interrupt received" in said
    assert "Traceback" not in said
    listed = subprocess.run(
        [*EMBEDDED, "state", "list"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert listed.stdout.split() == ["terraform_data.quick", "terraform_data.slow"]
