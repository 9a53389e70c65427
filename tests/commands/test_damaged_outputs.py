"""`invoke outputs` reads what AWS decided from Terraform's state, whatever was kept of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from infra.commands import operations
from infra.commands.environment import find, load_project
from infra.commands.rendering import write
from infra.drive.build_folders import Folders

ROOT = Path(__file__).parents[2]
VALUES = {"instances": {"master-1": {"private_ip": "10.0.0.10", "public_ip": "203.0.113.9"}}}
TYPE = ["object", {"master-1": ["object", {"private_ip": "string", "public_ip": "string"}]}]


def test_a_damaged_file_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    monkeypatch.chdir(tmp_path)
    minimal = find("minimal")
    write(load_project(minimal))
    state = {
        "version": 4, "terraform_version": "1.6.0", "serial": 1, "lineage": "x", "resources": [],
        "outputs": {name: {"value": value, "type": TYPE} for name, value in VALUES.items()},
    }  # fmt: skip
    folders = Folders(minimal.build.absolute())
    folders.state.mkdir(exist_ok=True)
    (folders.state / "terraform.tfstate").write_text(json.dumps(state))
    folders.outputs.write_text("{")
    assert operations.outputs(minimal, json=True) == 0
    assert json.loads(capsys.readouterr().out) == VALUES
    assert [*load_project(minimal).outputs.instances] == ["master-1"]
