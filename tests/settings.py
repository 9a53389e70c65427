"""The environment without what a developer has set in it."""

from __future__ import annotations

import os

import pytest


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take ours, Terraform's and AWS' variables away, but for where providers are taken from."""
    for name in list(os.environ):
        if name.startswith(("TF_", "CAUSEWAY_", "AWS_", "INFRA_")) and name != "TF_CLI_CONFIG_FILE":
            monkeypatch.delenv(name)
