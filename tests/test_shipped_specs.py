"""The shipped specs, from nothing to everything and back, as a person does it: processes and exit codes.

Real Terraform, real provider, the embedded AWS. Each spec runs in a project folder of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Project:
    """A folder with specs, as somebody's clone is."""

    folder: Path
    environment: str

    def invoke(self, *arguments: str, code: int = 0) -> str:
        """Run a task; its standard output. The exit code is asserted."""
        command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *arguments]
        command += ["--env", self.environment, "--rehearse"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{' '.join(arguments)}: {done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def edit(self, old: str, new: str) -> None:
        """Change the spec in one place."""
        path = self.folder / "environments" / f"{self.environment}.yaml"
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), encoding="utf-8")

    def inventory(self) -> dict[str, Any]:
        """What the embedded AWS holds."""
        told: dict[str, Any] = json.loads(self.invoke("local.status", "--json"))
        held: dict[str, Any] = told["inventory"]
        return held

    def tunnel_keys(self) -> set[str]:
        """All that gateways are given."""
        files = self.folder.glob("build/*/strongswan/*/etc/swanctl/conf.d/90-keys.conf")
        texts = [file.read_text(encoding="utf-8") for file in files]
        return {key for text in texts for key in re.findall(r'secret = "(.*)"', text)}

    def telling(self, keys: set[str]) -> list[Path]:
        """Files that hold a key and that somebody else could read: neither they nor a folder are closed."""
        return [
            path
            for path in self.folder.rglob("*")
            if path.is_file() and self._open(path) and any(key.encode() in path.read_bytes() for key in keys)
        ]

    def _open(self, path: Path) -> bool:
        above = [path, *path.parents]
        return all(each.stat().st_mode & 0o077 for each in above[: above.index(self.folder)])


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    made = Project(tmp_path, request.param)
    yield made
    made.invoke("local.down")


EDITS = [  # the longest first
    ("research", "us-west-2: {min: 2, max: 60}", "us-west-2: {min: 2, max: 61}", "cpu", "us-west-2"),
    ("local", "us-east-1: {max: 8}", "us-east-1: {max: 9}", "gpu", "us-east-1"),
    ("minimal", "{max: 4}", "{max: 5}", "cpu", "us-west-2"),
]


NARROWED = "minimal"
"""Where a plan is looked at before the edit too, and the one after it is narrowed to a site."""


@pytest.mark.parametrize(
    ("project", "old", "new", "pool", "site"), EDITS, ids=[edit[0] for edit in EDITS], indirect=["project"]
)
def test_from_nothing_to_everything_and_back(
    project: Project, old: str, new: str, pool: str, site: str
) -> None:
    said = project.invoke("apply", "--yes")
    assert "Applied to" in said
    if project.environment == "local":
        assert [line for line in readme_plan() if line not in said.splitlines()] == []
    assert project.inventory()[site]

    if project.environment == NARROWED:
        assert "No changes" in project.invoke("plan", "--detailed-exitcode")
    assert json.loads(project.invoke("drift", "--json")) == []
    outputs = json.loads(project.invoke("outputs", "--json"))
    assert outputs["networks"][site]["vpc_id"].startswith("vpc-")

    assert "Nothing has changed" in project.invoke("diff")
    assert bool(project.tunnel_keys()) is bool(outputs["vpn_connections"])
    assert not project.telling(project.tunnel_keys())

    project.edit(old, new)
    changed = json.loads(project.invoke("diff", "--json"))["files"]
    scaled = {"kubernetes/autoscaler/configuration.yaml", "kubernetes/autoscaler/controller.yaml"}
    assert {file["path"] for file in changed} == {
        "cluster.json",
        "terraform/terraform.tfvars.json",
        "kubernetes/after/queues/queues.yaml",  # there is more to share
        # It is told of the new size, and starts anew, where it runs.
        *(scaled if project.environment == "research" else ()),
    }
    # Of all sites, elsewhere: the one change also says that nothing else is left to do.
    only = ("--only", site) if project.environment == NARROWED else ()
    plan = json.loads(project.invoke("plan", "--json", "--detailed-exitcode", *only, code=2))
    [change] = plan["changes"]
    assert (change["type"], change["action"], change["site"]) == ("aws_autoscaling_group", "update", site)
    assert f'node_pool["{pool}"]' in change["address"]
    assert [attribute["path"] for attribute in change["attributes"]] == ["max_size"]

    project.invoke("topology")
    page = (project.folder / "build" / f"{project.environment}.rehearsal" / "topology.html").read_text(
        "utf-8"
    )
    assert f'class="mark pool change" data-id="{site}/{pool}"' in page
    project.invoke("destroy", "--confirm", project.environment)
    held = {
        (kind, name)
        for kinds in project.inventory().values()
        for kind, names in kinds.items()
        for name in names
    }
    assert {name for _, name in held} <= {STATES}, held


def readme_plan() -> list[str]:
    """The plan of `local` that README shows, without its last line, which asks to apply."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("```text\nlocal: ")[2].partition("```")[0]
    lines = f"local: {block}".splitlines()
    assert lines[-1].startswith("Saved.")
    return [line for line in lines[:-1] if line.strip() not in ("", "…")]


STATES = "research-terraform-state-lab-example"
"""The bucket of states: it was there before the first apply, and outlives the last."""
