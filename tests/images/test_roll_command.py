"""`invoke roll` as a person runs it: a process, exit codes, groups in two regions of the embedded AWS."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from images.test_roll import EAST, NEW, OLD, WEST, instances, launch_new, pool
from invoking import Project, on_embedded_aws

from infra.drive import localaws
from infra.drive.aws import Aws

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
class Lab:
    project: Project
    aws: Aws

    def roll(self, *words: str, code: int = 0) -> tuple[str, str]:
        return self.project.invoke("roll", *words, code=code)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Lab]:
    with on_embedded_aws(tmp_path, "tiny", SPEC) as (project, server):
        (tmp_path / "environments" / "tiny.lock.yaml").write_text(LOCK)
        yield Lab(project, Aws({**os.environ, **localaws.environment(server, WEST)}))


def test_a_pool_rolls_in_every_region_once_the_image_is_applied(project: Lab) -> None:
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


def test_what_can_not_be_is_told(project: Lab) -> None:
    for words, said in (
        (("--pool", "cpus"), "mean cpu?"),
        (("--pool", "cpu", "--region", "us-west-1"), "us-west-2"),
        (("--pool", "cpu", "--min-healthy", "120"), "--min-healthy"),
        (("--pool", "cpu", "--protected", "maybe"), "--protected"),
    ):
        _, err = project.roll(*words, code=1)
        assert said in err
