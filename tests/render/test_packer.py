"""Packer's files of every shipped spec and golden scenario, held against Packer itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from golden_folders import GOLDEN, SPEC

from infra.load import load
from infra.model import Cluster
from infra.render.packer import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ROOT = Path(__file__).parents[2]
SPECS = sorted([*GOLDEN.glob(f"*/{SPEC}"), *(ROOT / "environments").glob("[!b]*[!k].yaml")])
RUN = ("-var=spot=true", "-var=name=research-gpu-1", "-var=subnet=subnet-0123456789abcdef0")


def cluster_of(spec: Path) -> Cluster:
    return resolve(load(spec).spec, Lock(), spec.stem)[0]


@cache
def version(packer: str) -> tuple[int, ...]:
    said = subprocess.run([packer, "version"], capture_output=True, text=True, check=True, env=quiet())
    return tuple(map(int, said.stdout.split()[1].removeprefix("v").split("-")[0].split(".")))


def quiet() -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "none"}
    return {**os.environ, **keys, "CHECKPOINT_DISABLE": "1"}


def validate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What `packer validate` says of a rendered folder."""
    packer = shutil.which("packer")
    if packer is None:
        pytest.skip("needs packer")
    modern = version(packer) >= (1, 7)
    if modern:
        subprocess.run([packer, "init", folder], check=True, env=quiet())
    target = folder if modern else folder / "image.pkr.hcl"
    return subprocess.run(
        [packer, "validate", f"-var-file={folder / 'image.pkrvars.json'}", *options, target],
        cwd=ROOT, capture_output=True, text=True, env=quiet(), check=False,
    )  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.parent.name}-{spec.stem}")
def test_every_image_is_a_valid_template(spec: Path, tmp_path: Path) -> None:
    cluster = cluster_of(spec)
    for path, text in render(cluster).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    for image in cluster.images if cluster.regions else ():
        for options in ((), RUN):
            said = validate(tmp_path / image.name, *options)
            assert said.returncode == 0, said.stdout + said.stderr


def test_a_value_that_is_missing_is_not_valid(tmp_path: Path) -> None:
    files = render(cluster_of(ROOT / "environments" / "minimal.yaml"))
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    values = json.loads(files["cpu/image.pkrvars.json"])
    del values["source_owner"]
    (tmp_path / "cpu" / "image.pkrvars.json").write_text(json.dumps(values))
    assert validate(tmp_path / "cpu").returncode != 0


def test_the_static_files_are_as_packer_formats_them() -> None:
    packer = shutil.which("packer")
    if packer is None:
        pytest.skip("needs packer")
    assert (
        subprocess.run([packer, "fmt", "-check", ROOT / "templates/packer/static"], check=False).returncode
        == 0
    )
