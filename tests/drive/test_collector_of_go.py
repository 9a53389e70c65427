"""How often Terraform and its providers collect their garbage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.drive.engine import Engine
from infra.drive.terraform import Terraform


@pytest.fixture
def terraform(tmp_path: Path) -> Engine:
    program = tmp_path / "terraform"
    program.write_text("""#!/bin/sh\nprintf '{"GOGC": "%s"}' "$GOGC"\n""", encoding="utf-8")
    program.chmod(0o700)
    return Engine("terraform", "1.11.4", (str(program),))


def test_a_plan_is_read_with_fewer_collections(
    tmp_path: Path, terraform: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOGC", raising=False)
    assert Terraform(terraform, tmp_path, data=tmp_path / "data").show() == {"GOGC": "800"}


@pytest.mark.parametrize(("regions", "percent"), [(0, "300"), (3, "300"), (8, "125"), (20, "50"), (30, "50")])
def test_providers_of_many_regions_collect_more_often(
    tmp_path: Path, terraform: Engine, monkeypatch: pytest.MonkeyPatch, regions: int, percent: str
) -> None:
    monkeypatch.delenv("GOGC", raising=False)
    blocks = [f'provider "aws" {{\n  alias = "r{number}"\n}}\n' for number in range(regions)]
    (tmp_path / "providers.tf").write_text("".join(blocks), encoding="utf-8")
    asked = Terraform(terraform, tmp_path, data=tmp_path / "data")
    (asked.data).mkdir()
    assert json.loads(asked._run("output", title="Reading").stdout) == {"GOGC": percent}


def test_a_value_of_the_users_own_wins(
    tmp_path: Path, terraform: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOGC", "50")
    assert Terraform(terraform, tmp_path, data=tmp_path / "data").show() == {"GOGC": "50"}
