"""kubernetes: copies of etcd, and putting one back: one real member, three, and fewer than there were."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cookbooks.etcd_lab import Lab, Master
from embedded_aws import bucket, client, embedded
from waiting import until

from infra.drive import localaws
from infra.drive.localaws import Server


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        pytest.skip("etcd or etcdctl is not here: apt install etcd-server etcd-client")
    with embedded(tmp_path_factory.mktemp("aws")) as server:
        yield server


@pytest.fixture
def begin(aws: Server, tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """``begin("master-1", …)``: masters whose etcd serves, and a bucket."""
    labs: list[Lab] = []

    def start(*names: str) -> Lab:
        # Addresses of the loopback that no other test has.
        net = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}"
        name = f"copies-{random.randint(0, 1 << 40)}"
        bucket(aws, name)
        lab = Lab(tmp_path / "lab", net, names, localaws.environment(aws, "us-west-2"), name)
        labs.append(lab)
        for each in lab.masters:
            lab.wait(each)
        lab.put(lab.masters[0], "a", "unchanged")
        return lab

    yield start
    for lab in labs:
        lab.close()


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
    assert (unsure.returncode, "--yes" in unsure.stderr) == (1, True)
    healthy = lab.program(master, "restore", "restore", name, "--yes")
    assert (healthy.returncode, "--force" in healthy.stderr) == (1, True)
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
    peer = f"--peer-urls=https://{three.address}:2380"
    until(lambda: lab.ask(one, "member", "add", three.name, peer).returncode == 0, every=1)
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
    assert lab.get(master, "a") == "unchanged"


def test_a_copy_that_is_not_what_was_put_there_is_refused(begin: Callable[..., Lab], aws: Server) -> None:
    lab = begin("master-1")
    (master,) = lab.masters
    lab.put(master, "before", "kept")
    name = snapshot(lab)
    key = f"etcd/research/{name}"
    about = client(aws, "s3").head_object(Bucket=lab.bucket, Key=key)
    assert about["ServerSideEncryption"] == "AES256"
    assert about["Metadata"]["members"] == f"master-1=https://{master.address}:2380"
    client(aws, "s3").put_object(Bucket=lab.bucket, Key=key, Body=b"another", Metadata=about["Metadata"])
    done = lab.program(master, "restore", "restore", name, "--yes", "--force")
    assert (done.returncode, "digest" in done.stderr) == (1, True)
    assert lab.get(master, "before") == "kept"


def test_metrics_tell_of_the_last_good_copy(begin: Callable[..., Lab], aws: Server) -> None:
    lab = begin("master-1")
    (master,) = lab.masters
    snapshot(lab)

    def metrics() -> dict[str, str]:
        file = master.root / "var/lib/prometheus/node-exporter/causeway_etcd_snapshot.prom"
        lines = file.read_text().splitlines()
        return dict(line.split() for line in lines if not line.startswith("#"))

    good = metrics()
    assert good["causeway_etcd_snapshot_failed"] == "0"
    for row in client(aws, "s3").list_objects_v2(Bucket=lab.bucket)["Contents"]:
        client(aws, "s3").delete_object(Bucket=lab.bucket, Key=row["Key"])
    client(aws, "s3").delete_bucket(Bucket=lab.bucket)
    assert lab.program(master, "snapshot").returncode == 1
    assert metrics() == {**good, "causeway_etcd_snapshot_failed": "1"}
    assert not list((master.root / "var/lib/causeway/snapshots").iterdir())
