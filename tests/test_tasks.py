"""The command line as a person uses it: a process, its output, its exit code."""

from __future__ import annotations

import json
import subprocess
import sys


def invoke(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *arguments], capture_output=True, text=True, check=False
    )


def test_validate_says_that_a_sound_spec_is_sound() -> None:
    result = invoke("validate", "--env", "research")
    assert result.returncode == 0, result.stderr
    assert "environments/research.yaml is sound" in result.stdout


def test_validate_json() -> None:
    result = invoke("validate", "--env", "minimal", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == []


def test_an_environment_that_does_not_exist() -> None:
    result = invoke("validate", "--env", "reserach")
    assert result.returncode == 1
    assert "did you mean research?" in result.stderr
    assert "Traceback" not in result.stderr


def test_addresses_shows_every_block_under_its_owner() -> None:
    result = invoke("addresses", "--env", "local")
    assert result.returncode == 0, result.stderr
    lines = [line.split()[:2] for line in result.stdout.splitlines()]
    assert ["supernet", "10.0.0.0/8"] in lines
    assert ["sites/lab", "10.200.0.0/22"] in lines
    assert "private-us-west-2a" in [name for name, _ in lines]
