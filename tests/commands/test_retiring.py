"""A region that leaves the spec while nobody knows what of it AWS has."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from infra.commands import retiring, session
from infra.commands.environment import Project, find, load_project
from infra.commands.rendering import write
from infra.drive import last_applied
from infra.drive.engine import Engine
from infra.drive.lifecycle import Job
from infra.drive.unfinished import Creation

SPEC = """\
version: 1
name: lab
domain: lab.internal
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
sites:
  us-west-2: {kind: aws, zones: [us-west-2a], primary: true}
"""
MORE = "  eu-west-1: {kind: aws, zones: [eu-west-1a]}\n"

PROVIDER = 'provider["registry.terraform.io/hashicorp/aws"].eu_west_1'
VPC = Creation(
    "module.eu_west_1.module.network.aws_vpc.this", "module.eu_west_1.module.network", "aws_vpc", "this",
    None, PROVIDER, 1, "eu-west-1", {"environment": "lab", "Name": "lab"}, {},
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """``eu-west-1`` was planned, and then left the spec; the state has nothing."""
    spec = tmp_path / "environments" / "lab.yaml"
    spec.parent.mkdir()
    monkeypatch.chdir(tmp_path)
    spec.write_text(SPEC + MORE, encoding="utf-8")
    write(load_project(find("lab")))
    spec.write_text(SPEC, encoding="utf-8")
    project = load_project(find("lab"))
    assert [region.name for region in project.cluster.retired] == ["eu-west-1"]
    write(project)
    return project


def settled(project: Project) -> tuple[Project, Job]:
    job = Job(
        "lab", project.environment.build, Engine("terraform", "1.11.4", ("/bin/false",)), project.files,
        spec="", lock=project.lock, sites={"us_west_2": "us-west-2"},
    )  # fmt: skip
    (job.folders.root / "terraform.tfstate").write_text('{"version": 4, "resources": []}', encoding="utf-8")
    return retiring.settle(project, job)


def test_it_is_rendered_while_an_apply_may_have_created_something_there(project: Project) -> None:
    folders = Job("lab", project.environment.build, Engine("", "", ()), {}, "", "").folders
    last_applied.remember(folders, {}, {"begun": True, "creating": [asdict(VPC)]})
    found, job = settled(project)
    assert 'alias  = "eu_west_1"' in job.files["terraform/providers.tf"]
    assert [region.name for region in found.cluster.retired] == ["eu-west-1"]
    assert dict(job.retired) == {"eu-west-1": ("module.eu_west_1",)}


def test_it_is_forgotten_once_nothing_is_begun(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "forget_keys_of", lambda *_: None)  # no account is asked
    found, job = settled(project)
    assert "eu_west_1" not in job.files["terraform/providers.tf"]
    assert found.cluster.retired == ()
    assert dict(job.retired) == {}
