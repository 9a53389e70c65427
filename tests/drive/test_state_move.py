"""A state on its way between a file and S3, killed after each step: nothing is lost, and it can go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from infra.drive import last_applied, shared_last_applied, state_move
from infra.drive.build_folders import Folders
from infra.drive.state_backends import ChangedError, LocalPlace, Place, S3Place, previous
from infra.errors import DriveError
from infra.model.cluster import State

KEY = "lab/terraform.tfstate"
STEPS = ("closed", "copied", "ledger", "opened", "retired", "forgotten")


def state(serial: int, *, lineage: str = "one", resources: int = 1) -> bytes:
    held = [{"mode": "managed", "type": "aws_vpc", "name": f"n{number}"} for number in range(resources)]
    return json.dumps({"version": 4, "serial": serial, "lineage": lineage, "resources": held}).encode()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    folders = Folders(tmp_path / "lab")
    folders.data.mkdir(parents=True)
    return folders


@pytest.fixture
def env(endpoint: str) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture
def bucket(env: dict[str, str], tmp_path: Path) -> str:
    name = f"states-{zlib.crc32(str(tmp_path).encode())}"
    library: Any = boto3  # it has no annotations
    s3 = library.client(
        "s3",
        region_name="us-west-2",
        endpoint_url=env["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


def backend(folders: Folders, bucket: str) -> None:
    """Terraform's record of the backend it was initialised with."""
    config = {"bucket": bucket, "key": KEY, "region": "us-west-2"}
    (folders.data / "terraform.tfstate").write_text(json.dumps({"backend": {"type": "s3", "config": config}}))


def text(place: Place) -> bytes | None:
    stored = place.read()
    return stored.data if stored else None


@pytest.mark.parametrize("to", ["s3", "local"])
@pytest.mark.parametrize("killed_after", range(1, len(STEPS) + 1))
def test_killed_after_each_step(
    folders: Folders, env: dict[str, str], bucket: str, to: str, killed_after: int
) -> None:
    there, here = S3Place(env, bucket, KEY, "us-west-2"), LocalPlace(folders)
    source, destination = (here, there) if to == "s3" else (there, here)
    wanted = State("s3", bucket, "us-west-2", KEY) if to == "s3" else State("local", None, None, None)
    source.write(state(7), None)
    last_applied.remember(folders, {"a": "b"}, {"spec": "{}", "state": {"lineage": "one", "serial": 7}})
    if to == "local":
        backend(folders, bucket)
        shared_last_applied.publish(folders, there)
        last_applied.forget(folders)

    names = {"s3": f"{bucket}/{KEY}", "local": "local"}
    arguments = [str(folders.build), names["local" if to == "s3" else "s3"], names[to], str(killed_after)]
    program = Path(__file__).with_name("move_and_die.py")
    died = subprocess.run(
        [sys.executable, str(program), *arguments], env={**os.environ, **env}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert died.returncode == -9, died.stderr
    assert tuple(died.stdout.split()) == STEPS[:killed_after]
    assert state(7) in (text(source), text(destination))

    # As `invoke state.move` goes on.
    left = previous(wanted, folders, env)
    if left is None:
        state_move.finish(destination, folders)
    else:
        state_move.move(left, destination, folders)
    assert text(destination) == state(7)
    assert destination.closed() is None
    assert previous(wanted, folders, env) is None
    if to == "s3":
        assert text(here) is None  # Terraform does not find it, and it is kept
        assert (folders.state / "terraform.tfstate.moved-1").read_bytes() == state(7)
    else:
        assert text(there) == state(7)
        assert there.closed()["Info"].endswith(str(here))  # type: ignore[index]
    last_applied.forget(folders) if to == "s3" else None
    shared_last_applied.fetch(folders, destination)
    remembered = last_applied.recall(folders)
    assert remembered is not None
    assert (remembered.files, remembered.about["spec"]) == ({"a": "b"}, "{}")


def test_there_and_back_again(folders: Folders, env: dict[str, str], bucket: str) -> None:
    there, here = S3Place(env, bucket, KEY, "us-west-2"), LocalPlace(folders)
    there.write(state(3), None)
    state_move.move(there, here, folders)
    assert there.closed()
    stored = here.read()
    here.write(state(4), stored)
    state_move.move(here, there, folders)
    assert text(there) == state(4)
    assert there.closed() is None


def test_another_state_is_not_overwritten(folders: Folders, env: dict[str, str], bucket: str) -> None:
    there, here = S3Place(env, bucket, KEY, "us-west-2"), LocalPlace(folders)
    here.write(state(9), None)
    there.write(state(1, lineage="other"), None)
    with pytest.raises(DriveError, match="another state"):
        state_move.move(here, there, folders)
    assert (text(here), text(there)) == (state(9), state(1, lineage="other"))


def test_a_later_version_of_the_same_state_wins(folders: Folders, env: dict[str, str], bucket: str) -> None:
    there, here = S3Place(env, bucket, KEY, "us-west-2"), LocalPlace(folders)
    here.write(state(9), None)
    there.write(state(11), None)
    state_move.move(here, there, folders)
    assert text(there) == state(11)
    assert (folders.state / "terraform.tfstate.moved-1").read_bytes() == state(9)


def test_a_state_that_somebody_works_on_is_not_moved(
    folders: Folders, env: dict[str, str], bucket: str
) -> None:
    there, here = S3Place(env, bucket, KEY, "us-west-2"), LocalPlace(folders)
    there.write(state(3), None)
    lock = {"ID": "x", "Operation": "OperationTypeApply", "Who": "ada@lab", "Created": "today"}
    there.put(f"{KEY}.tflock", json.dumps(lock).encode(), None)
    with pytest.raises(DriveError, match="OperationTypeApply by ada@lab"):
        state_move.move(there, here, folders)
    assert text(here) is None


def test_a_state_that_was_moved_elsewhere_is_not_opened(
    folders: Folders, env: dict[str, str], bucket: str, tmp_path: Path
) -> None:
    there = S3Place(env, bucket, KEY, "us-west-2")
    there.write(state(3), None)
    other = Folders(tmp_path / "other")
    state_move.move(there, LocalPlace(other), other)
    with pytest.raises(DriveError, match="tfstate"):
        state_move.finish(there, folders)


def test_two_clones_share_one_ledger(
    folders: Folders, env: dict[str, str], bucket: str, tmp_path: Path
) -> None:
    place, clone = S3Place(env, bucket, KEY, "us-west-2"), Folders(tmp_path / "clone")

    def at(serial: int) -> dict[str, Any]:
        return {"spec": str(serial), "account": "123456789012", "state": {"lineage": "one", "serial": serial}}

    last_applied.remember(folders, {}, at(1))
    shared_last_applied.publish(folders, place)
    shared_last_applied.fetch(clone, place)
    assert last_applied.about(clone) == at(1)
    last_applied.remember(clone, {}, at(2))
    shared_last_applied.publish(clone, place)
    shared_last_applied.publish(folders, place)  # too late: it is not written over the other's
    shared_last_applied.fetch(folders, place)
    assert last_applied.about(folders) == at(2)
    shared_last_applied.forget(place, {"lineage": "one", "serial": 3})
    shared_last_applied.fetch(folders, place)
    assert last_applied.about(folders) is None


def test_a_write_that_comes_second_is_refused(env: dict[str, str], bucket: str) -> None:
    place = S3Place(env, bucket, KEY, "us-west-2")
    place.write(b"one", None)
    with pytest.raises(ChangedError):
        place.write(b"two", None)
    stored = place.read()
    place.write(b"two", stored)
    with pytest.raises(ChangedError):
        place.write(b"three", stored)
