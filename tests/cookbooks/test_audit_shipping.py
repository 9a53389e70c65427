"""kubernetes: the audit log of a real API server, which renames its files, in the embedded AWS."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cookbooks.masters import program, settle
from embedded_aws import bucket, client, embedded
from kube.api import Api
from kube.plane import planes
from localaws.control import Control
from localaws.faults import refused

from infra.drive import localaws

BUCKET = "research-audit"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "RequestResponse", "resources": [{"group": "", "resources": ["configmaps"]}]}],
}
"""Another than the cluster's: what fills a file soon."""


@dataclass
class Master:
    """Its file system, an API server that logs into it, and the embedded AWS."""

    root: Path
    admin: Api
    aws: localaws.Server

    @property
    def log(self) -> Path:
        return self.root / "var/log/kubernetes/audit"

    def ship(self) -> subprocess.CompletedProcess[str]:
        return program("audit", "--root", self.root, **localaws.environment(self.aws, "us-west-2"))

    def work(self, name: str, size: int) -> None:
        """A change, and an event of about twice that size."""
        about = {"name": name, "namespace": "default"}
        self.admin.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"x": "y" * size}}
        )

    def events(self) -> list[str]:
        """What is in the files of this machine."""
        lines = [line for file in self.log.iterdir() for line in file.read_text().splitlines()]
        return sorted(json.loads(line)["auditID"] for line in lines)

    def shipped(self) -> dict[str, list[str]]:
        """What is in the bucket."""
        s3 = self.s3()
        shipped = {}
        for row in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
            body = gzip.decompress(s3.get_object(Bucket=BUCKET, Key=row["Key"])["Body"].read())
            assert body.endswith(b"\n")
            shipped[row["Key"]] = [json.loads(line)["auditID"] for line in body.splitlines()]
        return shipped

    def s3(self) -> Any:
        return client(self.aws, "s3")

    def metrics(self) -> dict[str, str]:
        file = self.root / "var/lib/prometheus/node-exporter/causeway_audit_ship.prom"
        return dict(line.split() for line in file.read_text().splitlines() if not line.startswith("#"))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    folder = tmp_path_factory.mktemp("audit")
    root = folder / "master"
    for each in ("var/log/kubernetes/audit", "var/lib/prometheus/node-exporter"):
        (root / each).mkdir(parents=True)
    settle(root, audit={"bucket": BUCKET, "prefix": "audit/", "region": "us-west-2"})
    (folder / "policy.yaml").write_text(json.dumps(POLICY))
    words = [
        f"--audit-policy-file={folder}/policy.yaml", "--audit-log-mode=blocking-strict",
        f"--audit-log-path={root}/var/log/kubernetes/audit/audit.log", "--audit-log-maxsize=1",
        "--audit-log-maxbackup=10",
    ]  # fmt: skip
    with planes(folder, flags=words) as plane, embedded(folder / "aws") as aws:
        bucket(aws, BUCKET)
        yield Master(root, plane.admin, aws)


def test_each_event_is_copied_once_while_files_are_renamed(master: Master) -> None:
    for position in range(12):
        master.work(f"one-{position}", 150_000)
        if position % 4 == 1:
            done = master.ship()
            assert done.returncode == 0, done.stderr
    assert len(list(master.log.iterdir())) > 2, "the API server has renamed files"
    assert master.ship().returncode == 0
    shipped = master.shipped()
    assert sorted(event for events in shipped.values() for event in events) == master.events()
    today = f"{datetime.now(UTC):%Y/%m/%d}"
    assert all(key.startswith("audit/research/master-1/") and key.endswith(".log.gz") for key in shipped)
    assert any(today in key for key in shipped)
    assert master.ship().stdout.startswith("0 bytes")
    assert master.shipped() == shipped


def test_a_run_that_was_cut_off_writes_the_same_objects_again(master: Master) -> None:
    master.work("two", 1000)
    memory = master.root / "var/lib/causeway/audit-shipped.json"
    before = memory.read_text()
    assert master.ship().returncode == 0
    shipped = master.shipped()
    memory.write_text(before)
    assert master.ship().returncode == 0
    assert master.shipped() == shipped


def test_half_a_line_waits_for_the_rest(master: Master) -> None:
    """As it is while the API server writes."""
    assert master.ship().returncode == 0
    log = master.log / "audit-half.log"
    whole = b'{"auditID":"half","stageTimestamp":"2026-11-25T04:23:00.000000Z"}\n'
    with log.open("ab") as stream:
        stream.write(whole[:20])
    assert master.ship().stdout.startswith("0 bytes")
    with log.open("ab") as stream:
        stream.write(whole[20:])
    assert master.ship().stdout.startswith(f"{len(whole)} bytes")
    (key,) = (key for key, events in master.shipped().items() if events == ["half"])
    assert key.startswith("audit/research/master-1/2026/11/25/042300-")


def test_what_can_not_be_copied_is_copied_later(master: Master) -> None:
    assert master.ship().returncode == 0
    good = master.metrics()
    assert good["causeway_audit_ship_failed"] == "0"
    master.work("three", 1000)
    Control(master.aws).order(refused("PutObject", "AccessDenied", "Access Denied"))
    try:
        done = master.ship()
    finally:
        Control(master.aws).clear_faults()
    assert (done.returncode, "causeway-audit-ship: s3://research-audit/audit/" in done.stderr) == (1, True)
    assert master.metrics() == {**good, "causeway_audit_ship_failed": "1"}
    assert master.ship().returncode == 0
    assert sorted(event for events in master.shipped().values() for event in events) == master.events()


def test_how_far_back_copies_are_whole_is_measured(master: Master) -> None:
    """Nothing was lost; then the file that the API server wrote to last is gone with what was in it."""
    assert master.ship().returncode == 0
    before = master.metrics()
    since, total = "causeway_audit_ship_since_time_seconds", "causeway_audit_ship_bytes_total"
    events = [line for file in sorted(master.log.iterdir()) for line in file.read_text().splitlines()]
    assert int(before[total]) >= sum(len(line.encode()) + 1 for line in events)
    stamps = [datetime.fromisoformat(json.loads(line)["stageTimestamp"]).timestamp() for line in events]
    assert int(before["causeway_audit_ship_oldest_time_seconds"]) in map(int, stamps)
    assert master.ship().returncode == 0
    assert {key: master.metrics()[key] for key in (since, total)} == {
        key: before[key] for key in (since, total)
    }
    memory = master.root / "var/lib/causeway/audit-shipped.json"
    # As if the newest file of the last run had been another, which is gone.
    memory.write_text(json.dumps({**json.loads(memory.read_text()), "gone": 1}))
    measured = memory.with_name("audit-measured.json")
    measured.write_text(json.dumps({**json.loads(measured.read_text()), "since": 1000}))
    assert master.ship().returncode == 0
    assert master.metrics()[since] == master.metrics()["causeway_audit_ship_oldest_time_seconds"]
