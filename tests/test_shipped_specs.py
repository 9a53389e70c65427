"""The shipped specs, from nothing to everything and back, as a person does it: processes and exit codes.

Real Terraform, real provider, the embedded AWS. Each spec runs in a project folder of its own. The smallest
one is walked through in ``tests/test_spec_walks.py``.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from localaws.control import Control
from permissions.recorded import PLAN, recording

from benchmarks.lifecycle import reads
from benchmarks.lifecycle.project import Project
from benchmarks.lifecycle.walk import Walk
from infra.commands import session
from infra.commands.environment import find, load_project
from infra.drive import last_applied, lifecycle, localaws, repair, saved_plan
from infra.drive.build_folders import Folders
from infra.drive.localaws import Server
from infra.drive.unfinished import Creation

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    made = Project.copied(tmp_path, request.param)
    yield made
    made.invoke("local.down")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def aws(project: Project) -> Server:
    """The embedded AWS of a project, before anything is in it."""
    return localaws.start(project.build / "state/aws", project.environment)


def edit(project: Project, old: str, new: str) -> None:
    """Change the spec in one place."""
    text = project.spec_file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    project.spec_file.write_text(text.replace(old, new), encoding="utf-8")


def tunnel_keys(project: Project) -> set[str]:
    """All that gateways are given."""
    files = project.folder.glob("build/*/strongswan/*/etc/swanctl/conf.d/90-keys.conf")
    texts = [file.read_text(encoding="utf-8") for file in files]
    return {key for text in texts for key in re.findall(r'secret = "(.*)"', text)}


def telling(project: Project, keys: set[str]) -> list[Path]:
    """Files that hold a key and that somebody else could read: neither they nor a folder are closed."""

    def is_open(path: Path) -> bool:
        above = [path, *path.parents]
        return all(each.stat().st_mode & 0o077 for each in above[: above.index(project.folder)])

    return [
        path
        for path in project.folder.rglob("*")
        if path.is_file() and is_open(path) and any(key.encode() in path.read_bytes() for key in keys)
    ]


def changed_files(project: Project) -> set[str]:
    files = json.loads(project.invoke("diff", "--json"))["files"]
    return {file["path"] for file in files}


def larger(plan: dict[str, Any], site: str, pool: str) -> None:
    """Its one change is the new size of a pool's group."""
    assert plan["undeclared"] == []
    [change] = plan["changes"]
    assert (change["type"], change["action"], change["site"]) == ("aws_autoscaling_group", "update", site)
    assert f'node_pool["{pool}"]' in change["address"]
    assert [attribute["path"] for attribute in change["attributes"]] == ["max_size"]


ONE_SIZE = {
    "cluster.json",
    "terraform/terraform.tfvars.json",
    "kubernetes/after/queues/queues.yaml",  # there is more to share
}
"""Files that a pool's new size changes."""


@pytest.mark.parametrize("project", ["research"], indirect=True)
def test_from_nothing_to_everything_and_back(project: Project, update: bool) -> None:
    """All that we render, in three regions: applied, edited, gone, also what the state had lost; the shipped
    policies allow each call."""
    server = aws(project)
    with recording(server, "research", update=update):
        there_and_back(project, server)


def there_and_back(project: Project, server: Server) -> None:
    project.invoke("plan")
    planned = saved_plan.load(Folders(project.build.absolute()))
    assert planned is not None
    assert "Applied to" in project.invoke("apply")
    assert project.inventory()["us-west-2"]
    outputs = json.loads(project.invoke("outputs", "--json"))
    assert outputs["networks"]["us-west-2"]["vpc_id"].startswith("vpc-")
    assert outputs["vpn_connections"]
    assert tunnel_keys(project)
    assert not telling(project, tunnel_keys(project))

    assert changed_files(project) == set()
    edit(project, "us-west-2: {min: 2, max: 60}", "us-west-2: {min: 2, max: 61}")
    # The autoscaler is told of the new size, and starts anew; researchers see it.
    autoscaler = {f"kubernetes/autoscaler/{name}.yaml" for name in ("configuration", "controller")}
    offer = {"kubernetes/research/cluster.yaml"}
    assert changed_files(project) == ONE_SIZE | autoscaler | offer
    # The one change also says that the apply left nothing to do.
    larger(json.loads(project.invoke("plan", "--json", "--detailed-exitcode", code=2)), "us-west-2", "cpu")

    project.invoke("topology")
    page = (project.build / "topology.html").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith('<tr id="us-west-2/cpu"')]
    assert 'class="plan change"' in row
    # Another few each day; `invoke bench --only lifecycle_reads` takes all.
    some = Random(datetime.now(UTC).date().toordinal()).sample(
        sorted(reads.reads(Control(server).calls())), 12
    )
    assert reads.applied(Walk(project, Random(0)), server, some, "sample")[0], some
    lose(project, planned.creating)
    assert len({one.type for one in planned.creating}) > 25
    project.invoke("destroy", "--confirm", project.environment)
    held = {
        (kind, name)
        for kinds in project.inventory().values()
        for kind, names in kinds.items()
        for name in names
    }
    assert {name for _, name in held} <= {STATES}, held


def lose(project: Project, creations: Sequence[Creation]) -> None:
    """As if the apply had been killed before it learned of these, each of which is in AWS."""
    with contextlib.chdir(project.folder):
        environment = replace(find(project.environment), rehearsed=True)
        job = session.job(load_project(environment, changeable=True))
        state = job.terraform().pull()
        addresses = {one.address for one in creations}
        assert addresses <= repair.held(state).keys()
        for block in state["resources"]:
            kept = [one for one in block["instances"] if repair.address(block, one) not in addresses]
            block["instances"] = kept
        job.terraform().push({**state, "serial": state["serial"] + 1})
        before = last_applied.recall(job.folders)
        assert before is not None
        about = {**before.about, "creating": [asdict(one) for one in creations]}
        last_applied.remember(job.folders, before.files, about)
        assert lifecycle.share(job) == ""


@pytest.mark.parametrize("project", ["local"], indirect=True)
def test_a_plan_only_looks(project: Project, update: bool) -> None:
    """The spec without an account, planned with the policies of somebody who may not change anything."""
    with recording(aws(project), "local-plan", PLAN, update=update):
        project.invoke("plan")


STATES = "research-terraform-state-lab-example"
"""The bucket of states: it was there before the first apply, and outlives the last."""
