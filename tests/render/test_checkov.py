"""The rendered Terraform of `research` against checkov's rules, as `.checkov.yaml` chooses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_clusters import golden
from render.tools import run, write

from infra.render.terraform import render

ROOT = Path(__file__).parents[2]
CHECKOV = ROOT / ".venv-checkov/bin/checkov"


@pytest.mark.skipif(not CHECKOV.exists(), reason="no .venv-checkov: 'make setup-terraform' makes it")
def test_no_rule_is_broken(tmp_path: Path) -> None:
    write(tmp_path, render(golden("research")))
    config = ("--config-file", ROOT / ".checkov.yaml")
    output = run(CHECKOV, *config, "--directory", tmp_path, "--var-file", tmp_path / "terraform.tfvars.json")
    assert "Failed checks: 0" in output
