"""kubernetes: copies of etcd, and putting one back: one real member, three, and fewer than there were."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cookbooks.etcd_lab import Lab, Master

from infra.drive import localaws


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An embedded AWS: the variables by which programs find it."""
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        pytest.skip("etcd or etcdctl is not here: apt install etcd-server etcd-client")
    folder = tmp_path_factory.mktemp("aws")
    server = localaws.start(folder, "etcd")
    yield dict(localaws.environment(server, "us-west-2"))
    localaws.stop(folder)


@pytest.fixture
def begin(cloud: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """``begin("master-1", …)``: masters whose etcd serves, and a bucket."""
    labs: list[Lab] = []

    def start(*names: str) -> Lab:
        # Addresses of the loopback that no other test has.
        net = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}"
        bucket = f"copies-{random.randint(0, 1 << 40)}"
        s3(cloud).create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        labs.append(Lab(tmp_path / "lab", net, names, cloud, bucket))
        for each in labs[-1].masters:
            labs[-1].wait(each)
        labs[-1].put(labs[-1].masters[0], "a", "cluster is never empty")
        return labs[-1]

    yield start
    for lab in labs:
        lab.close()


def s3(cloud: dict[str, str]) -> Any:
    import boto3

    return boto3.client(
        "s3",
        region_name="us-west-2",
        endpoint_url=cloud["AWS_ENDPOINT_URL"],
        aws_access_key_id=cloud["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=cloud["AWS_SECRET_ACCESS_KEY"],
    )


def copies(lab: Lab, master: Master) -> list[dict[str, Any]]:
    done = lab.program(master, "restore", "list")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def snapshot(lab: Lab) -> str:
    """Every master's timer fires; the one copy that comes of it."""
    done = [lab.program(each, "snapshot") for each in lab.masters if each.process is not None]
    assert [each.returncode for each in done] == [0] * len(done), [each.stderr for each in done]
    (copy,) = copies(lab, lab.masters[0])
    assert copy["bytes"] > 0
    return str(copy["name"])


def test_a_copy_is_put_back_and_nothing_is_thrown_away(begin: Callable[..., Lab]) -> None:
    lab = begin("master-1")
    (master,) = lab.masters
    lab.put(master, "before", "kept")
    name = snapshot(lab)
    lab.put(master, "after", "lost")

    unsure = lab.program(master, "restore", "restore", name)
    assert (unsure.returncode, "say --yes" in unsure.stderr) == (1, True)
    healthy = lab.program(master, "restore", "restore", name, "--yes")
    assert (healthy.returncode, "etcd is well" in healthy.stderr) == (1, True)
    assert lab.get(master, "after") == "lost"

    done = lab.program(master, "restore", "restore", name, "--yes", "--force")
    assert done.returncode == 0, done.stderr
    lab.wait(master)
    assert (lab.get(master, "before"), lab.get(master, "after")) == ("kept", "")
    assert [each for each in master.data.iterdir() if each.name.startswith("member.before-")]


def test_one_of_three_copies_and_all_three_begin_anew(begin: Callable[..., Lab]) -> None:
    lab = begin("master-1", "master-2", "master-3")
    one, two, three = lab.masters
    lab.put(one, "before", "kept")
    name = snapshot(lab)  # of the leader alone: there is one copy
    lab.put(one, "after", "lost")

    three.lose()
    lab.put(one, "still", "serves")
    two.lose()
    assert lab.ask(one, "put", "x", "y").returncode != 0

    everybody = {each.name: each.address for each in lab.masters}
    for each in (two, three):  # machines like those that are lost
        each.declare(everybody)
    for each in lab.masters:
        assert lab.program(each, "restore", "stop").returncode == 0
    for each in lab.masters:
        done = lab.program(each, "restore", "restore", name, "--yes")
        assert done.returncode == 0, done.stderr
    for each in lab.masters:
        lab.wait(each)
        assert [lab.get(each, key) for key in ("before", "after", "still")] == ["kept", "", ""]
    members = json.loads(lab.ask(one, "member", "list", "--write-out=json").stdout)["members"]
    assert sorted(each["name"] for each in members) == ["master-1", "master-2", "master-3"]


def test_those_that_are_left_begin_without_the_lost_one_and_take_it_in_later(
    begin: Callable[..., Lab],
) -> None:
    lab = begin("master-1", "master-2", "master-3")
    one, two, three = lab.masters
    lab.put(one, "before", "kept")
    name = snapshot(lab)
    three.lose()
    for each in (one, two):
        assert lab.program(each, "restore", "stop").returncode == 0
    for each in (one, two):
        done = lab.program(each, "restore", "restore", name, "--yes", "--masters", "master-1,master-2")
        assert done.returncode == 0, done.stderr
    for each in (one, two):
        lab.wait(each)
        assert lab.get(each, "before") == "kept"

    # As kubeadm does, again and again: members are taken in when the others have been well for some seconds.
    last = time.monotonic() + 60
    while (
        added := lab.ask(one, "member", "add", three.name, f"--peer-urls=https://{three.address}:2380")
    ).returncode:
        assert time.monotonic() < last, added.stderr
        time.sleep(1)
    three.declare({each.name: each.address for each in lab.masters}, "existing")
    lab.wait(three)
    assert lab.get(three, "before") == "kept"


def test_a_name_that_is_no_master_is_refused_before_anything_stops(begin: Callable[..., Lab]) -> None:
    lab = begin("master-1")
    (master,) = lab.masters
    name = snapshot(lab)
    for wanted in ("master-1,master-9", "master-9"):
        done = lab.program(master, "restore", "restore", name, "--yes", "--force", "--masters", wanted)
        assert (done.returncode, "master-9" in done.stderr) == (1, True)
    assert lab.get(master, "a") == "cluster is never empty"


def test_a_copy_that_is_not_what_was_put_there_is_refused(
    begin: Callable[..., Lab], cloud: dict[str, str]
) -> None:
    lab = begin("master-1")
    (master,) = lab.masters
    lab.put(master, "before", "kept")
    name = snapshot(lab)
    key = f"etcd/research/{name}"
    about = s3(cloud).head_object(Bucket=lab.bucket, Key=key)
    assert about["ServerSideEncryption"] == "AES256"
    assert about["Metadata"]["members"] == f"master-1=https://{master.address}:2380"
    s3(cloud).put_object(Bucket=lab.bucket, Key=key, Body=b"another", Metadata=about["Metadata"])
    done = lab.program(master, "restore", "restore", name, "--yes", "--force")
    assert (done.returncode, "digest differs" in done.stderr) == (1, True)
    assert lab.get(master, "before") == "kept"


def test_metrics_tell_of_the_last_good_copy(begin: Callable[..., Lab], cloud: dict[str, str]) -> None:
    lab = begin("master-1")
    (master,) = lab.masters
    snapshot(lab)

    def metrics() -> dict[str, str]:
        file = master.root / "var/lib/prometheus/node-exporter/causeway_etcd_snapshot.prom"
        lines = file.read_text().splitlines()
        return dict(line.split() for line in lines if not line.startswith("#"))

    good = metrics()
    assert good["causeway_etcd_snapshot_failed"] == "0"
    for row in s3(cloud).list_objects_v2(Bucket=lab.bucket)["Contents"]:
        s3(cloud).delete_object(Bucket=lab.bucket, Key=row["Key"])
    s3(cloud).delete_bucket(Bucket=lab.bucket)
    assert lab.program(master, "snapshot").returncode == 1
    assert metrics() == {**good, "causeway_etcd_snapshot_failed": "1"}
    assert not list((master.root / "var/lib/causeway/snapshots").iterdir())
