"""An environment of physical machines alone: no account is asked, no Terraform is run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from infra.commands import operations, planning, rendering, show
from infra.commands.environment import Environment, find

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """The shipped one. There is no program on the path, and nobody is signed in."""
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return find("machines")


def test_it_is_sound_and_its_lock_file_is_whole(
    machines: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    before = machines.lock_file.read_text(encoding="utf-8")
    assert show.validate(machines, json=True) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert rendering.render(machines, json=True) == 0
    assert machines.lock_file.read_text(encoding="utf-8") == before
    assert {path.name for path in machines.build.iterdir() if path.is_dir()} == {"chef", "state"}


def test_a_plan_changes_nothing_and_leaves_what_machines_are_sent(
    machines: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planning.plan(machines, only=(), named=(), out="", json=True) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["has_changes"], planned["changes"], len(planned["notes"])) == (False, [], 1)
    assert (machines.build / "chef/nodes/titan-01.json").is_file()
    assert planning.apply(machines, named=(), yes=False) == 0
    assert operations.drift(machines, json=True) == 0
    assert operations.outputs(machines, json=True) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["[]", "{}"]
    assert planning.destroy(machines, confirm="") == 0


def test_doctor_asks_for_what_is_needed_alone(
    machines: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert operations.doctor(machines, json=True) == 0
    found = {each["check"]: each["state"] for each in json.loads(capsys.readouterr().out)}
    assert found.keys() == {"python", "git", "ssh", "rsync", "dot", "disk"}
    assert "fail" not in found.values()


def test_a_site_in_racks_is_no_target(machines: Environment) -> None:
    from infra.errors import UsageError

    with pytest.raises(UsageError, match="lab"):
        planning.plan(machines, only=("lab",), named=(), out="", json=False)
