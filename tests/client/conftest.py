"""A folder of code, the client's command line as a process, and a cluster for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from client.jobset_world import World, person, worlds
from client.process import Causeway, Finished


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of its own, where runs and caches go."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for code."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(home: Path) -> Mapping[str, str]:
    """The environment of a person who has nothing set."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TZ", "PYTHONPATH") if key in os.environ}
    # Debian's torch 1.13 can't read its own default of these two with Python 3.11, where an empty enum.Flag
    # is not iterated; "the output of rank 9 goes to a file" is as good as nothing.
    torch = {"OMP_NUM_THREADS": "1", "PET_REDIRECTS": "9:1", "PET_TEE": "9:1"}
    return {**kept, **torch, "HOME": str(home)}


@pytest.fixture
def command() -> list[str]:
    """The client, whichever Python has it."""
    return [sys.executable, "-m", "causeway"]


@pytest.fixture
def causeway(folder: Path, environment: Mapping[str, str], command: list[str]) -> Causeway:
    """Runs the client in ``folder``."""

    def run(*arguments: str) -> Finished:
        done = subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cluster without a queue, for all files that need no other."""
    with worlds(tmp_path_factory.mktemp("cluster")) as found:
        yield found
        assert found.pods.problems == []


@pytest.fixture
def ada(world: World, folder: Path, environment: Mapping[str, str], command: list[str]) -> Causeway:
    """Ada's shell, in the folder. A file with a ``world`` of its own has it there."""
    return person(world, "ada", folder, environment, command)
