"""The image: what is copied into it and installed in it is enough, and the pipelines that build it work.

No Docker here: the files that the Dockerfile copies are laid beside each other and run, and of Python's
packages there are none but those of the dependency group and what they need. ``docker`` is a stand-in.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.render.kubernetes import autoscaler as rendered

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "autoscaler"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
CI = ROOT / "docs" / "ci"

PROGRAM = """\
import importlib, json, pkgutil, sys
from importlib.abc import MetaPathFinder

allowed = frozenset(json.loads(sys.argv[1])) | sys.stdlib_module_names | {"infra"}

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.meta_path.insert(0, Absent())
import infra.autoscaler
names = [each.name for each in pkgutil.walk_packages(infra.autoscaler.__path__, "infra.autoscaler.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps(names))
"""


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def needed(names: Iterable[str]) -> set[str]:
    """Distributions that these need, themselves among them."""
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = canonicalize_name(todo.pop())
        if name in found:
            continue
        found.add(name)
        for text in metadata.requires(name) or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                todo.append(wanted.name)
    return found


def test_what_is_installed_is_of_what_was_tested() -> None:
    """In the same range, and with one version that is known to work."""
    group, all_of_it = project()["dependency-groups"]["autoscaler"], project()["project"]["dependencies"]
    assert set(group) <= set(all_of_it)
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.M)
    wanted = needed(Requirement(text).name for text in group)
    assert wanted <= {canonicalize_name(name) for name in pinned}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the Dockerfile copies out of the repository."""
    root = tmp_path_factory.mktemp("image")
    for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M):
        *sources, target = words.split()
        for source in sources:
            if not target.startswith("/app"):
                assert (ROOT / source).exists()
                continue
            to = root / target.removeprefix("/app/")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, to)
    return root


def test_all_of_it_can_be_imported_with_what_the_image_has(image: Path) -> None:
    group = [Requirement(text).name for text in project()["dependency-groups"]["autoscaler"]]
    inside = needed(group)
    allowed = {top for top, names in metadata.packages_distributions().items() if inside & _canonical(names)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(sorted(allowed))],
        cwd=image,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(image), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "infra.autoscaler.decide" in json.loads(ran.stdout)


def _canonical(names: Iterable[str]) -> set[str]:
    return {canonicalize_name(name) for name in names}


def test_nobody_is_root_in_it_and_it_runs_as_the_deployment_says() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.M)
    assert int(user) == rendered._USER
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.M)
    assert json.loads(entry) == ["python", "-m", "infra.autoscaler"]


def test_what_is_sent_to_the_builder_is_what_is_copied() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[0] == "*", "a whole repository has secrets and gigabytes"
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        source.partition("/")[0]
        for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M)
        for source in words.split()[:-1]
    }
    assert sent == copied


def scripts() -> dict[str, str]:
    """Name → the shell that builds and pushes."""
    steps = yaml.safe_load((CI / "github-autoscaler.yml").read_text())["jobs"]["build"]["steps"]
    gitlab = yaml.safe_load((CI / "gitlab-autoscaler.yml").read_text())["autoscaler"]["script"]
    return {"github": steps[-1]["run"], "gitlab": "\n".join(gitlab)}


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_a_pipeline_pushes_what_it_built_and_tried(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["build", "run", "push"]
    (tag,) = re.findall(r"--tag (\S+) \.$", asked[0])
    assert re.fullmatch(r"registry\.lab\.example/team/autoscaler:[0-9a-f]+-7", tag)
    assert asked[2].endswith(f" {tag}")
    assert f"--file {(FOLDER / 'Dockerfile').relative_to(ROOT)}" in asked[0]
    assert f"autoscaler: {{image: {tag}}}" in done.stdout + (tmp_path / "summary").read_text()


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "bin").mkdir()
    for program, text in (("docker", f'echo "$@" >>{folder}/asked'), ("git", "echo 0123456789ab")):
        path = folder / "bin" / program
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    (folder / "summary").touch()
    registry = "registry.lab.example/team"
    env = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "GITHUB_RUN_NUMBER": "7", "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "CAUSEWAY_REGISTRY": registry.title() if name == "github" else "", "CI_REGISTRY_IMAGE": registry,
        "CI_COMMIT_SHORT_SHA": "0123456789ab", "CI_PIPELINE_IID": "7",
    }  # fmt: skip
    # GitLab's docker image has a plain sh.
    shell = ["bash", "-eo", "pipefail"] if name == "github" else ["sh", "-e"]
    return subprocess.run(
        [*shell, "-c", scripts()[name]], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_the_pipelines_shell_is_clean(name: str, tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/{'bash' if name == 'github' else 'sh'}\n{scripts()[name]}\n")
    subprocess.run(["shellcheck", script], check=True)
