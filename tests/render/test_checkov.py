"""The rendered Terraform of `research` against checkov's rules, as `.checkov.yaml` chooses them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from golden_clusters import golden

from infra.render.terraform import render

ROOT = Path(__file__).parents[2]
CHECKOV = ROOT / ".venv-checkov/bin/checkov"


@pytest.mark.skipif(not CHECKOV.exists(), reason="no .venv-checkov: 'make setup-terraform' makes it")
def test_no_rule_is_broken(tmp_path: Path) -> None:
    for path, text in render(golden("research")).items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    command: list[str | Path] = [CHECKOV, "--config-file", ROOT / ".checkov.yaml", "--directory", tmp_path]
    command += ["--var-file", tmp_path / "terraform.tfvars.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Failed checks: 0" in done.stdout
