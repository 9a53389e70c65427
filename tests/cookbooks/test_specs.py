"""The cookbooks' own ChefSpec specs, where ChefSpec is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cookbooks.kitchen import cookbooks

RSPEC = os.environ.get("CHEF_RSPEC") or shutil.which("rspec")
"""An ``rspec`` that knows ChefSpec: Chef Workstation's, say."""


@pytest.fixture(scope="session")
def rspec(tmp_path_factory: pytest.TempPathFactory) -> str:
    if RSPEC is None:
        pytest.skip("rspec is not here: install Chef Workstation, or name its rspec in CHEF_RSPEC")
    spec = tmp_path_factory.mktemp("rspec") / "chefspec_spec.rb"
    spec.write_text("require 'chefspec'\n")
    if subprocess.run([RSPEC, spec], capture_output=True, check=False, cwd=spec.parent).returncode:
        pytest.skip(f"{RSPEC} does not know ChefSpec: name Chef Workstation's in CHEF_RSPEC")
    return RSPEC


@pytest.mark.parametrize("cookbook", cookbooks(), ids=lambda each: each.name)
def test_specs(rspec: str, cookbook: Path) -> None:
    done = subprocess.run([rspec], cwd=cookbook, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[1-9]\d* examples?, 0 failures$", done.stdout, re.MULTILINE), done.stdout
