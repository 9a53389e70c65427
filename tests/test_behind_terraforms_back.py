"""Forty changes behind Terraform's back: each found and named, all restored by plan and apply, none left.

One environment with a site, a pool, storage, DNS and an SSH node is applied once, on the embedded AWS. It
costs two applies, two plans and three drifts: three to four minutes, most of it waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drive.applying import apply_saved
from drive.behind_terraforms_back import CHANGES, World
from permissions.recorded import recording
from settings import forget_settings

from infra.commands import session
from infra.commands.environment import Environment, find, load_project
from infra.drive import lifecycle, localaws, saved_plan, summary, undeclared
from infra.drive.lifecycle import Job
from infra.drive.refresh import settle
from infra.drive.undeclared.state import declared

pytestmark = pytest.mark.timeout(900)

SPEC = """\
version: 1
name: doors
domain: doors.internal
aws: {embedded: true}
sites:
  rack:
    kind: physical
    cidr: 10.200.0.0/22
    gateway: {addresses: [198.51.100.10], routing: static}
    nodes:
      gateway: {address: 10.200.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}
  us-west-2: {kind: aws, zones: [us-west-2a], flow_logs: {}}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
storage:
  efs:
    home: {path: /home}
  s3:
    datasets: {path: /data}
access:
  ssh_nodes:
    login: {instance_type: t3.medium, image: cpu, public: true, ssh_from: [203.0.113.0/24]}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    forget_settings(monkeypatch)
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "doors.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    environment: Environment = find("doors")
    project = load_project(environment)
    made = session.job(project)
    from infra.commands.rendering import write

    write(project)
    yield made
    localaws.stop(session.embedded_folder(environment).absolute())


def test_each_change_is_found_named_and_restored(job: Job, request: pytest.FixtureRequest) -> None:
    """What restores them is allowed by the shipped policies."""
    lifecycle.plan(job)
    apply_saved(job)
    seen = World(job.aws(), declared(job.terraform().pull(), job.sites, job.regions))
    for change, _ in CHANGES.values():
        change(seen)

    state = saved_plan.local_state(job.folders)
    assert state is not None
    before = state.read_bytes()
    found = lifecycle.drift(job)
    assert found.exit_code == 2
    assert state.read_bytes() == before
    rows = summary.drift_json(found.changes, found.undeclared)
    said = [
        (
            row["address"],
            f"{row['type']} {row['reason']}" if row["action"] == "undeclared" else row["action"],
            [attribute["path"] for attribute in row["attributes"]],
        )
        for row in rows
    ]
    missing = [
        name
        for name, (_, (address, what)) in CHANGES.items()
        if not any(
            address in where
            and (
                action == "delete"
                if what == "gone"
                else what in action or any(path.startswith(what) for path in paths)
            )
            for where, action, paths in said
        )
    ]
    assert missing == []
    text = summary.drift_text(found.changes, found.undeclared, environment="doors", options="--env doors")
    assert all(address in text for _, (address, _) in CHANGES.values())

    # A door that an apply before this one would have written into the state as it is stays found.
    settle(job.terraform(), job.folders.state / "settle.tfplan", pauses=())
    again = lifecycle.drift(job)
    assert {one.id for one in again.undeclared} == {one.id for one in found.undeclared}
    assert "max_size" in {each.path for one in again.changes for each in one.attributes}

    aws = localaws.status(Path("build/doors/state/aws").absolute())
    assert aws is not None
    with recording(aws, "behind", update=request.config.getoption("--update-golden")):
        planned = lifecycle.plan(job)
        assert planned.saved.has_changes
        apply_saved(job)
    left = lifecycle.drift(job)
    assert summary.drift_json(left.changes, left.undeclared) == []
    assert undeclared.find(job.aws(), declared(job.terraform().pull(), job.sites, job.regions)) == ()
    assert lifecycle.plan(job).exit_code == 0
