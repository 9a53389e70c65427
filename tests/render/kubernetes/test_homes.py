"""Homes on EFS: the program that makes them, run as it is; copies that go where the spec says."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest
from golden_clusters import golden
from moto.server import ThreadedMotoServer
from strategies.outputs import outputs_for

from infra.model import Cluster
from infra.render.kubernetes import homes
from infra.render.templating import TEMPLATES

PROGRAM = TEMPLATES / "kubernetes" / "static" / "make-homes"


@pytest.fixture(scope="module")
def research() -> Cluster:
    return golden("research")


def objects(cluster: Cluster, file: str) -> list[dict[str, Any]]:
    return list(homes.objects(cluster, outputs_for(cluster)).get(file, []))


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """The list of those who have homes."""
    file = tmp_path / "people"
    file.write_text("ada 10001\nalan 10002\ngrace 10003\n")
    return file


def kind_of(folder: Path) -> str:
    """The file system that a folder is on, as stat(1) calls it."""
    told = subprocess.run(
        ["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True, timeout=30
    )
    return told.stdout.strip()


def make(people: Path, folder: Path, kind: str | None = None) -> str:
    command = ["sh", str(PROGRAM), str(people), str(folder), kind or kind_of(people)]
    done = subprocess.run(
        command, env={**os.environ, "ONCE": "1"}, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_everyone_gets_a_home_and_what_is_there_is_left_as_it_is(people: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    (folder / "ada").mkdir(parents=True)
    (folder / "ada").chmod(0o755)
    (folder / "ada" / "thesis").write_text("draft")
    (folder / ".alan.new").mkdir(0o700)  # of a run that was cut off
    (folder / "gone").mkdir()  # of somebody who left
    assert make(people, folder) == f"made {folder}/alan\nmade {folder}/grace\n"
    homes = {path.name: path.stat() for path in folder.iterdir()}
    assert {name: (it.st_uid, it.st_gid, stat.S_IMODE(it.st_mode)) for name, it in homes.items()} == {
        "ada": (0, 0, 0o755),
        "alan": (10002, 10002, 0o700),
        "grace": (10003, 10003, 0o700),
        "gone": (0, 0, 0o755),
    }
    assert (folder / "ada" / "thesis").read_text() == "draft"


def test_a_folder_that_is_away_is_waited_for(people: Path, tmp_path: Path) -> None:
    assert make(people, tmp_path / "not-mounted") == ""
    assert not (tmp_path / "not-mounted").exists()


def test_no_home_is_made_on_the_machines_own_disk(people: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    assert make(people, folder, kind="nfs") == ""
    assert not [*folder.iterdir()]


def test_a_folder_where_nothing_is_mounted_is_not_copied(research: Cluster, tmp_path: Path) -> None:
    """An empty one would take all copies with it. The job's own question, for the machine's own disk."""
    assert kind_of(tmp_path) != "nfs"
    for job in objects(research, "copies.yaml"):
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (asks,), (copies,) = pod["initContainers"], pod["containers"]
        assert asks["volumeMounts"] == copies["volumeMounts"]
        *question, path = asks["command"]
        assert path == copies["args"][1]
        for where in (tmp_path, tmp_path / "away"):
            assert subprocess.run([*question, where], check=False, timeout=30).returncode != 0
        told = [*question[:-1], question[-1].replace("= nfs", f"= '{kind_of(tmp_path)}'"), tmp_path]
        assert subprocess.run(told, check=False, timeout=30).returncode == 0


def test_a_copy_holds_what_is_there_and_no_more(research: Cluster, tmp_path: Path) -> None:
    """The job's own arguments and environment, with the real rclone, into the S3 of moto."""
    if shutil.which("rclone") is None:
        pytest.skip("rclone is not installed")
    job = objects(research, "copies.yaml")[0]
    container = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    verb, source, target, *options = container["args"]
    home = tmp_path / "home"
    (home / "ada").mkdir(parents=True)
    (home / "ada" / "thesis").write_text("all of it")
    (home / "ada" / "link").symlink_to("thesis")
    bucket, _, prefix = target.removeprefix(":s3:").partition("/")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", **keys)
        s3.create_bucket(Bucket=bucket)
        environment = {
            "PATH": os.environ["PATH"],
            **{each["name"]: each["value"] for each in container["env"]},
            **{name.upper(): value for name, value in keys.items()},
            "RCLONE_S3_ENDPOINT": f"http://127.0.0.1:{port}",
            "RCLONE_S3_PROVIDER": "Other",  # AWS's buckets are names in DNS; this one's are paths
        }
        assert source == "/home"
        command = ["rclone", verb, str(home), target, *options]

        def copied() -> set[str]:
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
            return {each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}

        assert copied() == {f"{prefix}/ada/link.rclonelink", f"{prefix}/ada/thesis"}
        (home / "ada" / "thesis").unlink()
        assert copied() == {f"{prefix}/ada/link.rclonelink"}
    finally:
        server.stop()
