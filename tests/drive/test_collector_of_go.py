"""How often Terraform and its providers collect their garbage."""

from __future__ import annotations

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


def test_a_value_of_the_users_own_wins(
    tmp_path: Path, terraform: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOGC", "50")
    assert Terraform(terraform, tmp_path, data=tmp_path / "data").show() == {"GOGC": "50"}
