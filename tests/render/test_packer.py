"""Packer's files of every golden scenario, the shipped specs among them, held against Packer itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from golden_clusters import golden
from golden_folders import scenarios
from render.tools import write

from infra.render.packer import render

ROOT = Path(__file__).parents[2]
RUN = ("-var=spot=true", "-var=name=research-gpu-1", "-var=subnet=subnet-0123456789abcdef0")


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


@pytest.mark.parametrize("scenario", scenarios())
def test_every_image_is_a_valid_template(scenario: str, tmp_path: Path) -> None:
    cluster = golden(scenario)
    write(tmp_path, render(cluster))
    for image in cluster.images if cluster.regions else ():
        for options in ((), RUN):
            said = validate(tmp_path / image.name, *options)
            assert said.returncode == 0, said.stdout + said.stderr


def test_a_value_that_is_missing_is_not_valid(tmp_path: Path) -> None:
    files = render(golden("minimal"))
    write(tmp_path, files)
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
