"""The pipelines of docs/ci: their shell steps run for real, against a bare repository in place of the forge.

GitHub's and GitLab's own runners are not to be had here: steps are run by the shells that these are known to
use, `gh` is a stand-in, and so are `invoke` and `docker`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CI = ROOT / "docs" / "ci"


def _load(name: str) -> dict[str, Any]:
    # YAML 1.1 takes GitHub's `on` for true.
    found: dict[str, Any] = yaml.safe_load((CI / name).read_text(encoding="utf-8"))
    return found


Step: TypeAlias = tuple[tuple[str, ...], str]
"""A shell, and what it runs."""

GITHUB: Final = {
    None: ("bash", "-e"),
    "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail"),
    "sh": ("sh", "-e"),
}
"""GitHub, "Workflow syntax", ``jobs.<job_id>.steps[*].shell``: what a step is run by, which is another shell
where none is named. The last word is the script's file."""

GITLAB: Final = ("bash", "-eo", "pipefail")
"""GitLab Runner sets both, where the image has a bash (shells/bash.go)."""


def _github(name: str, job: str, *, skipped: bool = False) -> list[Step]:
    """The steps of a job that are shell, less those that install and sign in; ``skipped``: or have `if`."""
    flow = _load(name)
    found = flow["jobs"][job]
    default = found.get("defaults", flow.get("defaults", {})).get("run", {}).get("shell")
    return [
        (GITHUB[step.get("shell", default)], step["run"])
        for step in found["steps"]
        if "run" in step and step["run"] != "make install" and step.get("name") != "Sign in"
        if not ("if" in step and skipped)
    ]


def _gitlab(name: str, job: str) -> list[Step]:
    return [(GITLAB, "\n".join(_flat(_load(name)[job]["script"])))]


def _flat(lines: list[Any]) -> list[str]:
    """GitLab takes lists within lists: that is how a job has the lines of another."""
    return [line for each in lines for line in (_flat(each) if isinstance(each, list) else [each])]


STEPS: Final = {
    "github": _github("github-bake.yml", "bake"),
    "gitlab": _gitlab("gitlab-bake.yml", "bake"),
}
"""Name → the shell that bakes and opens the request."""

BUILDS: Final = {
    "github": _github("github-autoscaler.yml", "build"),
    "gitlab": _gitlab("gitlab-autoscaler.yml", "autoscaler"),
}
"""Name → the shell that builds and pushes the autoscaler's image."""

PUSHES: Final = {
    "github": _github("github-push.yml", "push"),
    "gitlab": _gitlab("gitlab-push.yml", "push"),
}
"""Name → the shell that pushes what gateways need."""

PLANS: Final = {
    "github": _github("github-apply.yml", "apply", skipped=True),
    "gitlab": _gitlab("gitlab-apply.yml", "plan"),
}
"""Name → the shell of a request that edits an environment."""

APPLIES: Final = {
    "github": _github("github-apply.yml", "apply"),
    "gitlab": _gitlab("gitlab-apply.yml", "apply"),
}
"""Name → the shell that runs once it is merged."""

SCRIPTS: Final = {
    name: "\n".join(text for _, text in steps)
    for name, steps in (*STEPS.items(), *((f"{forge}-apply", steps) for forge, steps in APPLIES.items()))
}


@dataclass(frozen=True)
class Forge:
    """A clone, the bare repository it came from, and what `gh` was told."""

    clone: Path
    origin: Path
    told: Path
    env: dict[str, str]

    def run(self, steps: list[Step]) -> bool:
        """Whether the job is green: a step that fails ends it."""
        file = self.clone.parent / "step"
        for shell, text in steps:
            file.write_text(text)
            done = subprocess.run(
                [*shell, str(file)], cwd=self.clone, env=self.env, capture_output=True, text=True, check=False
            )
            if done.returncode:
                return False
        return True

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
        "CAUSEWAY_ENV": "lab", "CAUSEWAY_REGISTRY": "registry.test/lab",
        "CI_REGISTRY_IMAGE": "registry.test/lab",
        "GITHUB_RUN_NUMBER": "7", "CI_COMMIT_SHORT_SHA": "abc123", "CI_PIPELINE_IID": "7",
        "GITHUB_RUN_ID": "77", "GITHUB_SHA": "abc123", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "CI_PIPELINE_ID": "77", "CI_COMMIT_SHA": "abc123", "CI_DEFAULT_BRANCH": "main",
        "GITHUB_REF_NAME": "main", "CI_COMMIT_BRANCH": "main",
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


@pytest.mark.parametrize("name", STEPS)
def test_a_bake_that_changes_nothing_opens_nothing(forge: Forge, name: str) -> None:
    _bakes(forge, ":")
    assert forge.run(STEPS[name])
    assert forge.branches() == ["main"]
    assert not forge.told.exists()


@pytest.mark.parametrize("name", STEPS)
def test_new_images_come_as_a_branch_with_the_lock_file_alone(forge: Forge, name: str) -> None:
    _bakes(forge, "printf 'images:\\n' >>environments/lab.lock.yaml; touch left-behind")
    assert forge.run(STEPS[name])
    assert forge.branches() == ["images/lab-77", "main"]
    assert forge.lock_of("images/lab-77") == ["version: 1", "images:"]
    assert forge.lock_of("main") == ["version: 1"]
    if name == "github":
        told = forge.told.read_text().splitlines()
        assert told[:6] == ["pr", "create", "--base", "main", "--head", "images/lab-77"]
        assert "+images:" in (forge.clone / "body.md").read_text()


@pytest.mark.parametrize("name", STEPS)
def test_a_bake_that_fails_opens_nothing(forge: Forge, name: str) -> None:
    """A job that is green then would leave everybody on old images, and nobody would know."""
    _bakes(forge, "printf 'images:\\n' >>environments/lab.lock.yaml; echo '[]'; exit 1")
    assert not forge.run(STEPS[name])
    assert forge.branches() == ["main"]


@pytest.mark.parametrize("name", STEPS)
def test_a_lock_file_that_is_new_comes_as_a_branch_too(forge: Forge, name: str) -> None:
    """git diff says nothing of a file that is not tracked."""
    subprocess.run(
        "git rm -q environments/lab.lock.yaml && git commit -qm none && git push -q origin main",
        shell=True,
        check=True,
        cwd=forge.clone,
        env=forge.env,
    )
    _bakes(forge, "mkdir -p environments; printf 'images:\\n' >>environments/lab.lock.yaml")
    assert forge.run(STEPS[name])
    assert forge.branches() == ["images/lab-77", "main"]
    assert forge.lock_of("images/lab-77") == ["images:"]


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("failing", ["build", "run", "push", "none"])
def test_a_build_that_fails_is_red_and_pushes_nothing(forge: Forge, name: str, failing: str) -> None:
    _program(
        forge.clone.parent / "bin" / "docker",
        f'echo "$1" >>{forge.clone.parent}/docker; [ "$1" != {failing} ]',
    )
    assert forge.run(BUILDS[name]) is (failing == "none")
    done = (forge.clone.parent / "docker").read_text().split()
    assert ("push" in done) is (failing in ("push", "none"))


def test_actions_are_pinned_by_commit() -> None:
    """A tag may be moved by whoever takes over the action's repository."""
    used = [
        line.split("uses:")[1].strip()
        for path in sorted(CI.glob("github-*.yml"))
        for line in path.read_text().splitlines()
        if "uses:" in line
    ]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v[\d.]+", each)] == []


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


@pytest.mark.parametrize("name", PUSHES)
@pytest.mark.parametrize("fails", ["", "vpn.push", "vpn.status"])
def test_a_push_that_fails_fails_its_pipeline(forge: Forge, name: str, fails: str) -> None:
    """Also where what it prints is copied into a summary."""
    _program(forge.clone / ".venv" / "bin" / "invoke", f'echo "$1" >>{forge.told}; [ "$1" != "{fails}" ]')
    assert forge.run(PUSHES[name]) is (not fails)
    asked = ["outputs", "vpn.push", "vpn.status"]
    assert forge.told.read_text().split() == asked[: asked.index(fails) + 1 if fails else None]


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("fails", ["", "plan"])
def test_a_request_is_planned_and_never_applied(forge: Forge, name: str, fails: str) -> None:
    _program(forge.clone / ".venv" / "bin" / "invoke", f'echo "$1" >>{forge.told}; [ "$1" != "{fails}" ]')
    assert forge.run(PLANS[name]) is (not fails)
    assert forge.told.read_text().split() == ["plan"]


@pytest.mark.parametrize("name", APPLIES)
@pytest.mark.parametrize("fails", ["", "plan", "apply"])
def test_what_was_merged_is_planned_and_applied(forge: Forge, name: str, fails: str) -> None:
    _program(forge.clone / ".venv" / "bin" / "invoke", f'echo "$1" >>{forge.told}; [ "$1" != "{fails}" ]')
    assert forge.run(APPLIES[name]) is (not fails)
    assert forge.told.read_text().split() == (["plan"] if fails == "plan" else ["plan", "apply"])


@pytest.mark.parametrize("name", APPLIES)
def test_an_older_commit_is_not_applied_after_a_newer_one(forge: Forge, name: str) -> None:
    _program(forge.clone / ".venv" / "bin" / "invoke", f'echo "$1" >>{forge.told}')
    subprocess.run(
        "git commit -qm newer --allow-empty && git push -q origin main && git reset -q --hard HEAD~1",
        shell=True,
        check=True,
        cwd=forge.clone,
        env=forge.env,
    )
    assert forge.run(APPLIES[name])
    assert forge.told.read_text().split() == ["plan"]


@pytest.mark.parametrize("steps", [*PLANS.values(), *APPLIES.values()])
def test_addresses_that_nobody_committed_are_not_applied(forge: Forge, steps: list[Step]) -> None:
    """The lock file is written by the plan, and lost with the job."""
    _program(
        forge.clone / ".venv" / "bin" / "invoke",
        f"echo \"$1\" >>{forge.told}; printf 'blocks:\\n' >>environments/lab.lock.yaml",
    )
    assert not forge.run(steps)
    assert forge.told.read_text().split() == ["plan"]


def test_only_what_was_merged_has_the_role_that_applies() -> None:
    jobs = _load("gitlab-apply.yml")
    assert jobs["plan"]["variables"]["AWS_ROLE_ARN"] == "$AWS_PLAN_ROLE_ARN"
    assert jobs["plan"]["rules"][0]["if"].startswith('$CI_PIPELINE_SOURCE == "merge_request_event"')
    (step,) = (
        step
        for step in _load("github-apply.yml")["jobs"]["apply"]["steps"]
        if "invoke apply" in step.get("run", "")
    )
    assert step["if"] == "github.event_name == 'push'"


def test_there_are_no_long_lived_keys() -> None:
    for path in CI.iterdir():
        assert not re.search(r"AWS_(SECRET_)?ACCESS_KEY|aws-access-key-id", path.read_text())
    for job in ("bake", "push"):
        assert _load(f"github-{job}.yml")["permissions"]["id-token"] == "write"
        assert "AWS_ID_TOKEN" in _load(f"gitlab-{job}.yml")[job]["id_tokens"]
    for name in ("github", "gitlab"):
        (statement,) = json.loads((CI / f"{name}-trust.json").read_text())["Statement"]
        claims = statement["Condition"]["StringEquals"]
        assert [key for key in claims if key.endswith(":sub")], "without its repository anybody's job gets in"
        assert not any("*" in value for value in claims.values())
