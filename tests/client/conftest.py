"""A folder of code, the client's command line as a process, and a cluster for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from client.jobset_world import World, person, worlds
from client.process import Causeway, Laptop
from render.kubernetes.tracking_world import rendered

from infra.drive import localaws


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
    own = {key: os.environ[key] for key in ("PATH", "LANG", "TZ", "PYTHONPATH") if key in os.environ}
    # Debian's torch 1.13 can't read its own default of these two with Python 3.11, where an empty enum.Flag
    # is not iterated; "the output of rank 9 goes to a file" is as good as nothing.
    torch = {"OMP_NUM_THREADS": "1", "PET_REDIRECTS": "9:1", "PET_TEE": "9:1"}
    return {**own, **torch, "HOME": str(home)}


@pytest.fixture
def command() -> list[str]:
    """The client, whichever Python has it."""
    return [sys.executable, "-m", "causeway"]


@pytest.fixture
def causeway(folder: Path, environment: Mapping[str, str]) -> Laptop:
    """Runs the client in ``folder``."""
    return Laptop(folder, environment)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an embedded AWS, where there is the bucket ``work``."""
    server = localaws.start(tmp_path_factory.mktemp("aws"), "research")
    try:
        place = {"LocationConstraint": "us-west-2"}
        _s3(server.address).create_bucket(Bucket="work", CreateBucketConfiguration=place)
        yield server.address
    finally:
        localaws.stop(server.folder)


@pytest.fixture(scope="module")
def s3(aws: str) -> Any:
    """A client of its S3."""
    return _s3(aws)


def _s3(address: str) -> Any:
    return botocore.session.Session().create_client(
        "s3", region_name="us-west-2", endpoint_url=address, aws_access_key_id="x", aws_secret_access_key="x"
    )


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cluster without a queue, for all files that need no other."""
    with worlds(tmp_path_factory.mktemp("cluster")) as world:
        yield world
        assert world.pods.problems == []


@pytest.fixture(scope="session")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cluster with queues, for all files whose spec may be the golden ``research``."""
    with worlds(tmp_path_factory.mktemp("queue"), queues=True, spec=rendered()) as world:
        yield world
        assert world.pods.problems == []


@pytest.fixture
def ada(world: World, folder: Path, environment: Mapping[str, str], command: list[str]) -> Causeway:
    """Ada's shell, in the folder. A file with a ``world`` of its own has it there."""
    return person(world, "ada", folder, environment, command)
