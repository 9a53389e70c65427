"""The pipelines of docs/ci: their shell steps run for real, against a bare repository in place of the forge.

GitHub's and GitLab's own runners are not to be had here: `gh` is a stand-in, and so is `invoke`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CI = ROOT / "docs" / "ci"


def _load(name: str) -> dict[str, Any]:
    # YAML 1.1 takes GitHub's `on` for true.
    found: dict[str, Any] = yaml.safe_load((CI / name).read_text(encoding="utf-8"))
    return found


def _github() -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = _load("github-bake.yml")["jobs"]["bake"]["steps"]
    return steps


def _scripts() -> dict[str, str]:
    """Name → the shell that bakes and opens the request."""
    github = [step["run"] for step in _github() if "run" in step and step["run"] != "make install"]
    return {"github": "\n".join(github), "gitlab": "\n".join(_load("gitlab-bake.yml")["bake"]["script"])}


SCRIPTS = _scripts()


@dataclass(frozen=True)
class Forge:
    """A clone, the bare repository it came from, and what `gh` was told."""

    clone: Path
    origin: Path
    told: Path
    env: dict[str, str]

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.clone,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def branches(self) -> list[str]:
        return self._git("for-each-ref", "--format=%(refname:short)", "refs/heads")

    def lock_of(self, branch: str) -> list[str]:
        return self._git("show", f"{branch}:environments/lab.lock.yaml")

    def _git(self, *words: str) -> list[str]:
        done = subprocess.run(["git", "-C", self.origin, *words], check=True, capture_output=True, text=True)
        return done.stdout.splitlines()


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    env = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@lab.example",
        "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@lab.example",
        # GitLab takes the request from push options, and pushes to an address of its own.
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": f"url.{origin}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://bake:token@gitlab.test/lab/causeway.git",
        "GIT_CONFIG_KEY_1": "safe.directory",
        "GIT_CONFIG_VALUE_1": "*",
        "CAUSEWAY_ENV": "lab",
        "GITHUB_RUN_ID": "77", "GITHUB_SHA": "abc123", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "CI_PIPELINE_ID": "77", "CI_COMMIT_SHA": "abc123", "CI_DEFAULT_BRANCH": "main",
        "CI_SERVER_HOST": "gitlab.test", "CI_PROJECT_PATH": "lab/causeway", "GITLAB_PUSH_TOKEN": "token",
    }  # fmt: skip
    _program(tmp_path / "bin" / "gh", f'printf "%s\\n" "$@" >{tmp_path}/told')
    for words in (
        ("init", "--quiet", "--bare", "--initial-branch=main", str(origin)),
        ("-C", str(origin), "config", "receive.advertisePushOptions", "true"),
        ("init", "--quiet", "--initial-branch=main", str(clone)),
        ("-C", str(clone), "remote", "add", "origin", str(origin)),
    ):
        subprocess.run(["git", *words], check=True, env=env)
    (clone / "environments").mkdir()
    (clone / "environments" / "lab.lock.yaml").write_text("version: 1\n")
    subprocess.run(
        "git add . && git commit -qm first && git push -q origin main",
        shell=True,
        check=True,
        cwd=clone,
        env=env,
    )
    return Forge(clone, origin, tmp_path / "told", env)


def _bakes(forge: Forge, text: str) -> None:
    _program(forge.clone / ".venv" / "bin" / "invoke", f"{text}\necho '[]'")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_bake_that_changes_nothing_opens_nothing(forge: Forge, name: str) -> None:
    _bakes(forge, ":")
    forge.run(SCRIPTS[name])
    assert forge.branches() == ["main"]
    assert not forge.told.exists()


@pytest.mark.parametrize("name", SCRIPTS)
def test_new_images_come_as_a_branch_with_the_lock_file_alone(forge: Forge, name: str) -> None:
    _bakes(forge, "printf 'images:\\n' >>environments/lab.lock.yaml; touch left-behind")
    forge.run(SCRIPTS[name])
    assert forge.branches() == ["images/lab-77", "main"]
    assert forge.lock_of("images/lab-77") == ["version: 1", "images:"]
    assert forge.lock_of("main") == ["version: 1"]
    if name == "github":
        told = forge.told.read_text().splitlines()
        assert told[:6] == ["pr", "create", "--base", "main", "--head", "images/lab-77"]
        assert "+images:" in (forge.clone / "body.md").read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_bake_that_fails_opens_nothing(forge: Forge, name: str) -> None:
    _bakes(forge, "printf 'images:\\n' >>environments/lab.lock.yaml; exit 1")
    with pytest.raises(AssertionError):
        forge.run(SCRIPTS[name])
    assert forge.branches() == ["main"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_commands_are_ones_that_invoke_knows(name: str) -> None:
    from tasks import namespace

    called = re.findall(r"\.venv/bin/invoke ([\w.-]+)((?: --[\w-]+)*)", SCRIPTS[name])
    assert called
    for task, options in called:
        flags = namespace[task].get_arguments()
        known = {f"--{each.replace('_', '-')}" for argument in flags for each in argument.names}
        assert set(options.split()) <= known


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_shell_is_clean(name: str, tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/bash\n{SCRIPTS[name]}\n")
    subprocess.run(["shellcheck", script], check=True)


def test_there_are_no_long_lived_keys() -> None:
    for path in CI.iterdir():
        assert not re.search(r"AWS_(SECRET_)?ACCESS_KEY|aws-access-key-id", path.read_text())
    assert _load("github-bake.yml")["permissions"]["id-token"] == "write"
    assert "AWS_ID_TOKEN" in _load("gitlab-bake.yml")["bake"]["id_tokens"]
    for name in ("github", "gitlab"):
        (statement,) = json.loads((CI / f"{name}-trust.json").read_text())["Statement"]
        claims = statement["Condition"]["StringEquals"]
        assert [key for key in claims if key.endswith(":sub")], "without its repository anybody's job gets in"
        assert not any("*" in value for value in claims.values())
