"""`invoke images --containers`: what it prints, and its exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from infra.commands import images
from infra.commands.environment import Project, find, load_project
from infra.drive import registries
from infra.drive.registries import Manifest, RegistryError
from infra.model.containers import ContainerImage

ROOT = Path(__file__).parents[2]
TRAEFIK = "docker.io/library/traefik:v3.7.11"


@pytest.fixture
def minimal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    monkeypatch.chdir(tmp_path)
    return load_project(find("minimal"))


def test_a_table_for_people(minimal: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert images.pulled(minimal, sizes=False, json=False) == 0
    said = capsys.readouterr()
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0] == ["image", "used", "by", "digest", "size"]
    assert [TRAEFIK, "ingress", "-", "-"] in lines
    assert lines[-1] == [str(len(lines) - 2), "images"]
    assert "v1.36.2" in said.err


def test_rows_for_programs(minimal: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert images.pulled(minimal, sizes=False, json=True) == 0
    rows = {row["image"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[TRAEFIK] == {
        "image": TRAEFIK,
        "registry": "docker.io",
        "repository": "library/traefik",
        "tag": "v3.7.11",
        "digest": None,
        "size": None,
        "used_by": ["ingress"],
    }


def test_what_a_registry_does_not_say_is_the_exit_code(
    minimal: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registries are replaced here; test_registries.py asks one."""
    answers = {TRAEFIK: RegistryError(f"{TRAEFIK}: docker.io answers 429 Too Many Requests")}
    known = Manifest("sha256:" + 64 * "a", 3 * 2**20)
    asked: list[set[str]] = []

    def ask_all(found: list[ContainerImage], architectures: set[str]) -> list[Manifest | RegistryError]:
        asked.append(architectures)
        return [answers.get(each.name, known) for each in found]

    monkeypatch.setattr(registries, "ask_all", ask_all)
    assert images.pulled(minimal, sizes=True, json=False) == 1
    said = capsys.readouterr()
    lines = [line.split() for line in said.out.splitlines()]
    assert [TRAEFIK, "ingress", "-", "-"] in lines
    count = len(lines) - 2
    assert sum(line[-3:] == ["sha256:aaaaaaaaaaaa", "3.0", "MiB"] for line in lines) == count - 1
    assert lines[-1][:4] == [str(count), "images,", f"{3 * (count - 1)}.0", "MiB"]
    assert "429" in said.err
    assert asked == [{"amd64"}]
    answers.clear()
    assert images.pulled(minimal, sizes=True, json=True) == 0
    assert {(row["digest"], row["size"]) for row in json.loads(capsys.readouterr().out)} == {
        (known.digest, known.size)
    }
