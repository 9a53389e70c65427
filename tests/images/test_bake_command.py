"""`invoke bake`, `images` and `images.prune` as a person runs them: processes, exit codes, the lock file."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import invoking
import pytest
import yaml
from images.bake_environment import REGIONS, World
from waiting import until

from infra.drive import localaws
from infra.drive.images.journal import new_id

LOCK = """\
version: 1
images:
  old:
    us-west-2: ami-0123456789abcdef0
"""


class Project:
    """A folder with one environment, ``tiny``, whose embedded AWS has machines."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        (folder / "environments").mkdir()
        (folder / "environments" / "tiny.yaml").write_text((folder / "tiny.yaml").read_text())
        self.lock.write_text(LOCK)

    @property
    def lock(self) -> Path:
        return self.folder / "environments" / "tiny.lock.yaml"

    @property
    def images(self) -> dict[str, dict[str, str]]:
        images: dict[str, dict[str, str]] = yaml.safe_load(self.lock.read_text())["images"]
        return images

    def start(self, *words: str) -> subprocess.Popen[str]:
        return invoking.Project(self.folder, "tiny").start(*words)

    def invoke(self, *words: str, code: int = 0) -> tuple[str, str]:
        return invoking.Project(self.folder, "tiny").invoke(*words, code=code)


@pytest.fixture
def project(world: World, tmp_path: Path) -> Project:
    # The world's server stands where the environment's has to be.
    assert (tmp_path / "build" / "state" / "aws") == world.server.folder
    (tmp_path / "build" / "tiny").symlink_to(".")
    return Project(world, tmp_path)


def test_a_bake_is_locked_found_again_and_listed(project: Project) -> None:
    out, _ = project.invoke("bake", "--image", "cpu", "--json")
    (result,) = json.loads(out)
    assert result["baked"] is True
    assert list(result["images"]) == list(REGIONS)
    assert project.images == {"old": {"us-west-2": "ami-0123456789abcdef0"}, "cpu": result["images"]}
    before = project.lock.read_text()
    out, _ = project.invoke("bake", "--all", "--json")
    assert [row["baked"] for row in json.loads(out)] == [False]
    assert project.lock.read_text() == before
    assert len(project.world.calls("start")) == 1

    project.lock.write_text(LOCK)
    project.invoke("bake", "--image", "cpu")
    assert project.lock.read_text() == before, "ids that the lock lost are put back without a bake"

    out, _ = project.invoke("images", "--json")
    rows = json.loads(out)
    assert {row["state"] for row in rows} == {"current"}
    assert [row["ami"] for row in rows] == list(result["images"].values())
    out, _ = project.invoke("images.prune", "--keep", "0", "--json")
    assert [row["stays"] for row in json.loads(out)["images"]] == [True]


def test_a_dry_run_changes_nothing(project: Project) -> None:
    out, _ = project.invoke("bake", "--all", "--dry-run")
    assert "cpu" in out
    assert all(region in out for region in REGIONS)
    assert project.world.calls("start") == []
    assert project.images == {"old": {"us-west-2": "ami-0123456789abcdef0"}}


def test_a_client_that_cannot_be_downloaded_starts_no_instance(project: Project) -> None:
    for package in (project.folder / "build" / "state" / "client").iterdir():
        package.unlink()
    _, err = project.invoke("bake", "--image", "cpu", "--on-demand", code=1)
    assert "http://127.0.0.1:9/amd64.deb" in err
    assert project.world.calls("start") == []
    assert project.world.left() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bake_that_is_stopped_leaves_nothing(project: Project, number: signal.Signals) -> None:
    project.world.break_machines("slow-chef")
    process = project.start("bake", "--image", "cpu", "--on-demand")
    until(lambda: "converge.sh" in said(project))
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert project.images == {"old": {"us-west-2": "ami-0123456789abcdef0"}}
    project.world.assert_nothing_is_left()


def test_a_bake_that_is_killed_is_cleaned_up_after(project: Project) -> None:
    project.world.break_machines("slow-chef")
    process = project.start("bake", "--image", "cpu", "--on-demand")
    until(lambda: "converge.sh" in said(project))
    process.kill()
    process.communicate(timeout=300)
    if sys.platform == "linux":  # Packer is told, and ends its instance by itself
        until(lambda: not project.world.machines_running())
    assert project.images == {"old": {"us-west-2": "ami-0123456789abcdef0"}}
    project.world.break_machines()
    project.invoke("bake", "--image", "cpu", "--on-demand")
    assert set(project.images["cpu"]) == set(REGIONS)
    for region in REGIONS:
        assert project.world.tagged(region) == project.world.images_of(region)
        assert len(project.world.images_of(region)) == 2


def test_old_images_are_pruned_and_new_ones_stay(project: Project) -> None:
    baked = []
    for number in range(3):
        spec = (
            (project.folder / "tiny.yaml")
            .read_text()
            .replace("cpu: {}", f"cpu: {{root_disk: {50 + number} GiB}}")
        )
        (project.folder / "environments" / "tiny.yaml").write_text(spec)
        out, _ = project.invoke("bake", "--image", "cpu", "--on-demand", "--json")
        baked.append(json.loads(out)[0]["images"])
    project.invoke("images.prune", "--keep", "1")
    assert len(project.world.images_of(REGIONS[0])) == 6, "without --yes all stay"
    out, _ = project.invoke("images.prune", "--keep", "1", "--yes", "--json")
    plan = json.loads(out)
    assert [row["stays"] for row in plan["images"]] == [True, False, False]
    for region in REGIONS:
        assert len(project.world.images_of(region)) == 2
        assert baked[2][region] in project.world.images_of(region)


def test_what_a_bake_left_that_was_killed_elsewhere_is_pruned(project: Project) -> None:
    ec2 = project.world.aws.client("ec2", REGIONS[0])
    for bake in ("20260101-000000-abcdef", new_id()):
        tags = [{"Key": "causeway:bake", "Value": bake}, {"Key": "environment", "Value": "tiny"}]
        ec2.create_security_group(
            GroupName=f"causeway-{bake}",
            Description="left",
            TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
        )
    assert "20260101-000000-abcdef" in project.invoke("images.prune")[0]
    assert len(project.world.tagged(REGIONS[0])) == 2
    assert "20260101-000000-abcdef" in project.invoke("images.prune", "--yes")[0]
    assert len(project.world.tagged(REGIONS[0])) == 1, "the other one may still be at work"


def test_without_machines_it_says_so_at_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project.world.server.folder
    localaws.stop(folder)
    monkeypatch.delenv("CAUSEWAY_MACHINES")
    _, err = project.invoke("bake", "--image", "cpu", code=1)
    found = re.search(r"invoke bake --env tiny (.*--dry-run)", err)
    assert found is not None, err
    out, _ = project.invoke("bake", *found[1].split())
    assert "cpu" in out


def test_what_can_not_be_meant_is_refused(project: Project) -> None:
    for arguments, answer in (
        (("bake",), "--image cpu, or --all"),
        (("bake", "--image", "cpuu"), "mean cpu?"),
        (("bake", "--image", "cpu", "--private"), "--ssh-from"),
        (("roll", "--pool", "gpu"), "gpu"),
        (("images.prune", "--keep", "-1"), "--keep"),
    ):
        assert answer in project.invoke(*arguments, code=1)[1], arguments


def said(project: Project) -> str:
    logs = sorted((project.folder / "build" / "state" / "bakes").glob("*.log"))
    return logs[-1].read_text() if logs else ""
