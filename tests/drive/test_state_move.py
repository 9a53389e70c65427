"""A state on its way between a file and S3, killed after each step: nothing is lost, and it can go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    folders = Folders(tmp_path / "lab")
    folders.data.mkdir(parents=True)
    return folders


def backend(folders: Folders, bucket: str) -> None:
    """Terraform's record of the backend it was initialised with."""
    config = {"bucket": bucket, "key": KEY, "region": "us-west-2"}
    (folders.data / "terraform.tfstate").write_text(json.dumps({"backend": {"type": "s3", "config": config}}))


@pytest.fixture
def remote(moto_env: dict[str, str], state_bucket: str) -> S3Place:
    return S3Place(moto_env, state_bucket, KEY, "us-west-2")


def text(place: Place) -> bytes | None:
    stored = place.read()
    return stored.data if stored else None


@pytest.mark.parametrize("to", ["s3", "local"])
@pytest.mark.parametrize("killed_after", range(1, len(STEPS) + 1))
def test_killed_after_each_step(
    folders: Folders, moto_env: dict[str, str], remote: S3Place, state_bucket: str, to: str, killed_after: int
) -> None:
    there, here = remote, LocalPlace(folders)
    source, destination = (here, there) if to == "s3" else (there, here)
    wanted = State("s3", state_bucket, "us-west-2", KEY) if to == "s3" else State("local", None, None, None)
    source.write(state(7), None)
    last_applied.remember(folders, {"a": "b"}, {"spec": "{}", "state": {"lineage": "one", "serial": 7}})
    if to == "local":
        backend(folders, state_bucket)
        shared_last_applied.publish(folders, there)
        last_applied.forget(folders)

    names = {"s3": f"{state_bucket}/{KEY}", "local": "local"}
    arguments = [str(folders.build), names["local" if to == "s3" else "s3"], names[to], str(killed_after)]
    program = Path(__file__).with_name("move_and_die.py")
    command, env = [sys.executable, str(program), *arguments], {**os.environ, **moto_env}
    died = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert died.returncode == -9, died.stderr
    assert tuple(died.stdout.split()) == STEPS[:killed_after]
    assert state(7) in (text(source), text(destination))

    # As `invoke state.move` goes on.
    left = previous(wanted, folders, moto_env)
    if left is None:
        state_move.finish(destination, folders)
    else:
        state_move.move(left, destination, folders)
    assert text(destination) == state(7)
    assert destination.closed() is None
    assert previous(wanted, folders, moto_env) is None
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


def test_there_and_back_again(folders: Folders, remote: S3Place) -> None:
    there, here = remote, LocalPlace(folders)
    there.write(state(3), None)
    state_move.move(there, here, folders)
    assert there.closed()
    stored = here.read()
    here.write(state(4), stored)
    state_move.move(here, there, folders)
    assert text(there) == state(4)
    assert there.closed() is None


def test_another_state_is_not_overwritten(folders: Folders, remote: S3Place) -> None:
    there, here = remote, LocalPlace(folders)
    here.write(state(9), None)
    there.write(state(1, lineage="other"), None)
    with pytest.raises(DriveError, match="another state"):
        state_move.move(here, there, folders)
    assert (text(here), text(there)) == (state(9), state(1, lineage="other"))


def test_a_later_version_of_the_same_state_wins(folders: Folders, remote: S3Place) -> None:
    there, here = remote, LocalPlace(folders)
    here.write(state(9), None)
    there.write(state(11), None)
    state_move.move(here, there, folders)
    assert text(there) == state(11)
    assert (folders.state / "terraform.tfstate.moved-1").read_bytes() == state(9)


def test_a_state_that_somebody_works_on_is_not_moved(folders: Folders, remote: S3Place) -> None:
    there, here = remote, LocalPlace(folders)
    there.write(state(3), None)
    lock = {"ID": "x", "Operation": "OperationTypeApply", "Who": "ada@lab", "Created": "today"}
    there.put(f"{KEY}.tflock", json.dumps(lock).encode(), None)
    with pytest.raises(DriveError, match="OperationTypeApply by ada@lab"):
        state_move.move(there, here, folders)
    assert text(here) is None


def test_a_state_that_was_moved_elsewhere_is_not_opened(
    folders: Folders, remote: S3Place, tmp_path: Path
) -> None:
    there = remote
    there.write(state(3), None)
    other = Folders(tmp_path / "other")
    state_move.move(there, LocalPlace(other), other)
    with pytest.raises(DriveError, match="tfstate"):
        state_move.finish(there, folders)


def test_two_clones_share_one_ledger(folders: Folders, remote: S3Place, tmp_path: Path) -> None:
    place, clone = remote, Folders(tmp_path / "clone")

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


def test_a_write_that_comes_second_is_refused(remote: S3Place) -> None:
    remote.write(b"one", None)
    with pytest.raises(ChangedError):
        remote.write(b"two", None)
    stored = remote.read()
    remote.write(b"two", stored)
    with pytest.raises(ChangedError):
        remote.write(b"three", stored)
