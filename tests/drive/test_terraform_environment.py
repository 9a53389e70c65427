"""What Terraform is told about logs and garbage collection."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.drive.engine import Engine
from infra.drive.terraform import Terraform

NAMES = ("GOGC", "TF_LOG_SDK", "TF_LOG_PROVIDER_AWS")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The settings that reach a Terraform."""
    monkeypatch.delenv("GOGC", raising=False)
    program = tmp_path / "terraform"
    program.write_text(
        f"""#!/bin/sh\nprintf '["%s", "%s", "%s"]' {" ".join(f'"${name}"' for name in NAMES)}\n"""
    )
    program.chmod(0o700)

    def ask(env: dict[str, str] | None = None, *command: str) -> list[str]:
        engine = Engine("terraform", "1.11.4", (str(program),))
        terraform = Terraform(engine, tmp_path, env, data=tmp_path / "data")
        terraform.data.mkdir()
        return json.loads(terraform._run(*command, title="Reading").stdout)  # type: ignore[no-any-return]

    return ask


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ({}, ["OFF", "OFF"]),
        ({"TF_LOG": ""}, ["OFF", "OFF"]),
        ({"TF_LOG": "debug"}, ["", ""]),
        ({"TF_LOG_PROVIDER": "trace"}, ["", ""]),
        ({"TF_LOG_PROVIDER_AWS": "trace"}, ["", "trace"]),
    ],
)
def test_a_users_own_settings_of_logs_win(
    settings: Callable[..., list[str]], given: dict[str, str], passed: list[str]
) -> None:
    assert settings(given, "show")[1:] == passed


@pytest.mark.parametrize(("regions", "percent"), [(0, "300"), (3, "300"), (8, "125"), (20, "50"), (30, "50")])
def test_providers_of_many_regions_collect_more_often(
    settings: Callable[..., list[str]], tmp_path: Path, regions: int, percent: str
) -> None:
    blocks = [f'provider "aws" {{\n  alias = "r{number}"\n}}\n' for number in range(regions)]
    (tmp_path / "providers.tf").write_text("".join(blocks))
    assert settings(None, "output")[0] == percent


def test_a_plan_is_read_with_fewer_collections_unless_the_user_says_otherwise(
    settings: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert settings(None, "show")[0] == "800"
    monkeypatch.setenv("GOGC", "50")
    (tmp_path / "data").rmdir()
    assert settings(None, "show")[0] == "50"
