"""`invoke roll` as a person runs it: a process, exit codes, groups in two regions of the embedded AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from images.test_roll import EAST, NEW, OLD, WEST, instances, launch_new, pool

from infra.drive import localaws
from infra.drive.aws import Aws

ROOT = Path(__file__).parents[2]
SPEC = """\
version: 1
name: tiny
domain: tiny.internal
aws: {embedded: true}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
  us-east-1: {kind: aws, zones: [us-east-1a]}
images: {cpu: {}}
pools:
  cpu: {image: cpu, instance_types: [m6i.large], regions: {us-west-2: {max: 4}, us-east-1: {max: 4}}}
"""
LOCK = f"version: 1\nimages:\n  cpu:\n    us-east-1: {NEW}\n    us-west-2: {NEW}\n"


@dataclass(frozen=True)
class Project:
    folder: Path
    aws: Aws

    def roll(self, *words: str, code: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "invoke", "--search-root", str(ROOT), "roll", *words, "--env", "tiny"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "tiny.yaml").write_text(SPEC)
    (tmp_path / "environments" / "tiny.lock.yaml").write_text(LOCK)
    server = localaws.start(tmp_path / "build" / "tiny" / "state" / "aws", "tiny")
    try:
        yield Project(tmp_path, Aws({**os.environ, **localaws.environment(server, WEST)}))
    finally:
        localaws.stop(server.folder)


def test_a_pool_rolls_in_every_region_once_the_image_is_applied(project: Project) -> None:
    _, err = project.roll("--pool", "cpu", code=1)
    assert "tiny-us-west-2-cpu" in err
    assert "invoke apply --env tiny" in err
    west, east = (pool(project.aws, region, 2, f"tiny-{region}-cpu") for region in (WEST, EAST))
    launch_new(project.aws, west)
    _, err = project.roll("--pool", "cpu", code=1)
    assert "tiny-us-east-1-cpu" in err
    assert OLD in err
    assert NEW in err
    assert instances(project.aws, WEST) == [OLD] * 2, "nothing is begun before all can be"

    out, _ = project.roll("--pool", "cpu", "--region", "us-west-2")
    assert out.split() == ["us-west-2", "tiny-us-west-2-cpu", "Successful"]
    assert instances(project.aws, WEST) == [NEW] * 2
    assert instances(project.aws, EAST) == [OLD] * 2
    launch_new(project.aws, east)
    out, _ = project.roll("--pool", "cpu", "--json")
    assert [(row["group"]["region"], row["status"]) for row in json.loads(out)] == [
        (WEST, "Successful"),
        (EAST, "Successful"),
    ]
    assert instances(project.aws, EAST) == [NEW] * 2


def test_what_can_not_be_is_told(project: Project) -> None:
    for words, said in (
        (("--pool", "cpus"), "mean cpu?"),
        (("--pool", "cpu", "--region", "us-west-1"), "us-west-2"),
        (("--pool", "cpu", "--min-healthy", "120"), "--min-healthy"),
        (("--pool", "cpu", "--protected", "maybe"), "--protected"),
    ):
        _, err = project.roll(*words, code=1)
        assert said in err
