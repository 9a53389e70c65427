"""`invoke cluster.tracking-backup` and `cluster.tracking-restore`: a real PostgreSQL in the place of its pod.

kubectl is a stand-in that runs what it would run in the pod: there is no kubelet here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from golden_clusters import golden
from golden_folders import GOLDEN, SPEC
from msgspec.structs import replace
from ports import reserved
from render.kubernetes.tracking_world import postgres, rendered

from infra.commands import cluster_access
from infra.commands.cluster import tracking
from infra.commands.environment import Project
from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.kubernetes.access import Access
from infra.drive.kubernetes.kubectl import Kubectl, Program
from infra.errors import DriveError, UsageError
from infra.load import load
from infra.model import Cluster
from infra.resolve.research import resolve_tracking

_KUBECTL = """#!/bin/sh
echo "$@" >>"$CALLS"
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do shift; done
[ "$#" -eq 0 ] || { shift; exec "$@"; }
"""


def project(cluster: Cluster) -> Project:
    environment = SimpleNamespace(name="research", options="--env research", spec_file="research.yaml")
    return cast("Project", SimpleNamespace(cluster=cluster, environment=environment))


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What kubectl was called with, a line each. The database is there."""
    program, said = tmp_path / "kubectl", tmp_path / "calls"
    program.write_text(_KUBECTL)
    program.chmod(0o755)
    kubectl = Kubectl(
        Program(str(program), (1, 36)),
        cast("Access", SimpleNamespace(kubeconfig=tmp_path / "kubeconfig", folder=tmp_path)),
    )

    @contextmanager
    def reach(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(kubectl=kubectl)

    monkeypatch.setattr(cluster_access, "reach", reach)
    monkeypatch.chdir(tmp_path)
    with reserved(1) as (port,), postgres(tmp_path / "postgres", port, "a-password"):
        for name, value in {
            "PGHOST": "127.0.0.1", "PGPORT": str(port), "PGPASSWORD": "a-password", "CALLS": str(said),
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield said


def sql(text: str) -> str:
    words = ["psql", "--username=mlflow", "--dbname=mlflow", "-AXtc", text]
    return subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ).stdout.strip()


def test_a_pods_database_is_copied_and_put_back(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = project(rendered())
    sql("CREATE TABLE runs (name text)")
    sql("INSERT INTO runs VALUES ('resnet-1')")
    assert tracking.backup(lab, "", listed=False, json=True) == 0
    backup = json.loads(capsys.readouterr().out)
    assert backup["file"].startswith("research-mlflow-")
    assert Path(backup["file"]).stat().st_size == backup["bytes"]
    sql("DELETE FROM runs")
    with pytest.raises(UsageError, match="not found"):
        tracking.restore(lab, "none.dump", yes=True, json=False)
    assert tracking.restore(lab, backup["file"], yes=True, json=True) == 0
    assert len(json.loads(capsys.readouterr().out)["steps"]) == 2
    assert sql("SELECT name FROM runs") == "resnet-1"
    said = calls.read_text().splitlines()
    assert all({"exec", "--namespace=mlflow", "database-0"} <= {*line.split()} for line in said[:-2])
    assert ["rollout restart" in said[-2], "rollout status" in said[-1]] == [True, True]
    assert all("a-password" not in line for line in said)
    Path("bad.dump").write_text("nothing")
    with pytest.raises(DriveError):
        tracking.restore(lab, "bad.dump", yes=True, json=False)
    assert len([line for line in calls.read_text().splitlines() if "rollout" in line]) == 2
    with pytest.raises(UsageError, match="--snapshots"):
        tracking.backup(lab, "", listed=True, json=False)


def test_nothing_is_put_back_that_nobody_agreed_to(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = project(rendered())
    tracking.backup(lab, "a.dump", listed=False, json=False)
    before = calls.read_text()
    monkeypatch.setattr(tracking, "ask", lambda _: "other")
    with pytest.raises(UsageError):
        tracking.restore(lab, "a.dump", yes=False, json=False)
    assert calls.read_text() == before


def test_a_database_at_rds_has_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, wanted = golden("research"), load(GOLDEN / "research" / SPEC).spec.kubernetes.tracking
    assert wanted is not None
    found = resolve_tracking(wanted, "research", replace(cluster.regions[0], name="west"))
    managed = found.managed
    assert managed is not None
    lab = project(replace(cluster, tracking=found))
    server = localaws.start(tmp_path / "aws", "databases")
    try:
        aws = Aws(localaws.environment(server, "us-west-2"))
        monkeypatch.setattr(tracking, "_aws", lambda _: aws)
        aws.client("rds", "us-west-2").create_db_instance(
            DBInstanceIdentifier=managed.name, DBInstanceClass="db.t4g.small", Engine="postgres",
            AllocatedStorage=20, MasterUsername="mlflow", MasterUserPassword="not-a-real-one",
        )  # fmt: skip
        assert tracking.backup(lab, "", listed=False, json=True) == 0
        name = json.loads(capsys.readouterr().out)["snapshot"]
        assert tracking.backup(lab, "", listed=True, json=True) == 0
        found = json.loads(capsys.readouterr().out)
        assert [each["name"] for each in found if each["kept"]] == [name]
        assert tracking.backup(lab, "", listed=True, json=False) == 0
        assert name in capsys.readouterr().out
    finally:
        localaws.stop(server.folder)
    with pytest.raises(UsageError, match="--file"):
        tracking.backup(lab, "a.dump", listed=False, json=False)
    with pytest.raises(UsageError, match=managed.name):
        tracking.restore(lab, "a.dump", yes=True, json=False)
    off = project(replace(cluster, tracking=None))
    with pytest.raises(UsageError, match="tracking"):
        tracking.backup(off, "", listed=False, json=False)
