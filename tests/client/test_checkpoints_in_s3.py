"""The sidecar as a process, killed while it copies to the embedded S3, and what a start finds then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from client.pods import wait

from causeway.checkpoints import Policy
from causeway.restoring import restore
from causeway.storage import Bucket, MissingError

_POLICY = Policy(("worker-0",))
_RUN = "runs/user-ada/train-1"
_FILES = 30
_SIZE = 256 << 10


def start(aws: str, folder: Path) -> subprocess.Popen[bytes]:
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2] / "client"),
        "AWS_ENDPOINT_URL": aws, "AWS_DEFAULT_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x", "CAUSEWAY_KEPT": f"s3://work/{_RUN}", "CAUSEWAY_ROLE": "worker",
        "CAUSEWAY_POLICY": _POLICY.text(),
    }  # fmt: skip
    return subprocess.Popen([sys.executable, "-m", "causeway.keep", str(folder)], env=env)


def write(folder: Path, step: int) -> None:
    place = folder / f"checkpoints/step-{step}.tmp"
    place.mkdir()
    for number in range(_FILES):
        (place / f"shard-{number}").write_bytes(bytes([step]) * _SIZE)
    time.sleep(0.05)
    place.rename(place.with_suffix(""))


def resumed(s3: Any, tmp_path: Path) -> str:
    """The checkpoint that a start finds, all of it."""
    folder = tmp_path / "start"
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.mkdir(exist_ok=True)
    restore([Bucket(s3, "work", f"{_RUN}/checkpoints/")], _POLICY, folder)
    name = str(json.loads((folder / ".resumed.json").read_text())["name"])
    if name:
        step = int(name.rpartition("-")[2])
        files = {path.name: path.read_bytes() for path in (folder / name).iterdir()}
        assert files == {f"shard-{number}": bytes([step]) * _SIZE for number in range(_FILES)}
    return name


def test_a_sidecar_that_is_killed_while_it_copies_never_leaves_a_part(
    aws: str, s3: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "causeway"
    for name in ("output", "results", "checkpoints"):
        (folder / name).mkdir(parents=True)
    storage = Bucket(s3, "work", f"{_RUN}/checkpoints/")
    assert restore([storage], _POLICY, folder / "checkpoints") == []
    # That the worker has ended has it copy at once.
    (folder / "output/ended.json").write_text(json.dumps({"exit": 9, "at": 0}))
    write(folder, 1)
    first = start(aws, folder)
    first.wait(60)
    assert resumed(s3, tmp_path) == "step-1"
    write(folder, 2)
    # At any call of the copier: test_checkpoints.py. After the first files and the last ones, and between.
    for seen in (1, 2, 3, 8, 15, 22, 28, 29, 30):
        process = start(aws, folder)
        wait(lambda: sum("step-2" in key for key in storage.sizes("files/")) >= seen)  # noqa: B023  called here
        process.kill()
        process.wait()
        assert resumed(s3, tmp_path) in ("step-1", "step-2")
    # One that comes next takes away what was not finished.
    storage.write("files/worker-0/000001-00000000000000000009-step-9/step-9/shard-0", b"left")
    assert start(aws, folder).wait(60) == 0
    assert resumed(s3, tmp_path) == "step-2"
    for step in (3, 4):
        write(folder, step)
        assert start(aws, folder).wait(60) == 0
    names = {key.rpartition("-step-")[2] for key in storage.sizes("manifests/")}
    assert names == {"3.json", "4.json"}
    assert len(storage.sizes("files/")) == 2 * _FILES
    # A byte of the newest one changes in the store.
    hurt = next(key for key in storage.sizes("files/") if key.endswith("step-4/shard-3"))
    storage.write(hurt, bytes([4]) * (_SIZE - 1) + b"x")
    assert resumed(s3, tmp_path) == "step-3"


def test_what_is_not_in_the_bucket_is_missing_and_no_failure_of_the_store(s3: Any, tmp_path: Path) -> None:
    storage = Bucket(s3, "work", "none/")
    for ask in (lambda: storage.read("x"), lambda: storage.fetch({"x": tmp_path / "x"})):
        with pytest.raises(MissingError):
            ask()
    storage.remove(["x"])
