"""Each Dockerfile builds, and what it makes runs as its user. Real buildah; no engine and no registry.

The base image is played: the Python of Debian 13, in the place of `python:3.12-slim-bookworm`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from machines.disk import mirror
from qemu import Unavailable

ROOT: Final = Path(__file__).parents[1]
BASE: Final = "docker.io/library/python:3.12-slim-bookworm"
SUITE: Final = "trixie"
TRUSTED: Final = Path("/etc/ssl/certs/ca-certificates.crt")
RUNS: Final = {
    "client/Dockerfile": [
        ["causeway", "--version"],
        ["uv", "--version"],
        ["python", "-c", "import causeway.keep, causeway.fetch, causeway.saving, causeway.restoring"],
        ["python", "-c", "import causeway.board"],
        ["python", "-m", "tensorboard.main", "--version_tb"],
    ],
    "tracking/Dockerfile": [
        ["mlflow", "--version"],
        ["python", "-c", "import boto3, mlflow_kubernetes_plugins.auth, psycopg2, sqlalchemy"],
    ],
    "infra/autoscaler/Dockerfile": [["python", "-m", "infra.autoscaler", "--help"]],
}
"""By Dockerfile: what has to run in its image."""
DOWNLOADS: Final = {"docs/efa/Dockerfile"}
"""They fetch what no package registry has; `tests/test_efa_installer.py` tries how this one does."""


@dataclass(frozen=True)
class Builder:
    folder: Path

    def __call__(self, *words: str) -> str:
        program = ["buildah", "--root", str(self.folder / "store"), "--runroot", str(self.folder / "run")]
        env = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            [*program, *words], capture_output=True, text=True, env=env, cwd=ROOT, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """With the base image in its store."""
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} not found")
    if os.geteuid():
        pytest.skip("needs root: debootstrap and buildah use chroot")
    try:
        source = mirror()
    except Unavailable as fault:
        pytest.skip(str(fault))
    folder = tmp_path_factory.mktemp("buildah")
    made = Builder(folder)
    packages = "--include=python3-venv,python-is-python3,ca-certificates"
    tree = folder / "tree"
    subprocess.run(
        ["debootstrap", "--variant=minbase", packages, SUITE, str(tree), source.uri],
        check=True,
        capture_output=True,
    )
    for kept in ("var/cache/apt", "var/lib/apt", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(tree / kept)
    shutil.copyfile(TRUSTED, tree / TRUSTED.relative_to("/"))
    container = made("from", "scratch")
    made("copy", "--quiet", container, str(tree), "/")
    # Packages come from where this machine has them from.
    for name in ("PIP_INDEX_URL", "PIP_CERT"):
        if value := os.environ.get(name):
            made("config", "--env", f"{name}={value}", container)
    made("commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(tree)
    yield made
    made("rm", "--all")
    made("rmi", "--all", "--force")


def test_every_dockerfile_is_tried() -> None:
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*Dockerfile"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {*listed} == {*RUNS} | DOWNLOADS


@pytest.mark.parametrize("file", RUNS)
def test_an_image_is_built_and_runs_as_nobody(builder: Builder, file: str) -> None:
    builder("build", "--pull-never", "--file", file, "--tag", "made", ".")
    container = builder("from", "made")
    for words in RUNS[file]:
        builder("run", container, "--", *words)
    assert builder("run", container, "--", "id", "-u") == "65532"
    builder("rm", container)
