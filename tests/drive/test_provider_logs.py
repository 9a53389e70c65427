"""Providers log only for a user who asks for logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.drive.engine import Engine
from infra.drive.terraform import Terraform


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
def test_a_users_own_settings_of_logs_win(given: dict[str, str], passed: list[str], tmp_path: Path) -> None:
    program = tmp_path / "terraform"
    program.write_text(
        """#!/bin/sh\nprintf '{"logs": ["%s", "%s"]}' "$TF_LOG_SDK" "$TF_LOG_PROVIDER_AWS"\n""",
        encoding="utf-8",
    )
    program.chmod(0o700)
    asked = Terraform(Engine("terraform", "1.11.4", (str(program),)), tmp_path, given, data=tmp_path / "data")
    assert asked.show() == {"logs": passed}
