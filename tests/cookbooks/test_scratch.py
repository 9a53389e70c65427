"""How a machine says that it has no scratch space, with a real mount in a namespace of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cookbooks.kitchen import COOKBOOKS

from infra.catalogue.labels import SCRATCH_MISSING

SCRIPT = COOKBOOKS / "storage/files/causeway-scratch"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_node_says_that_scratch_is_missing_until_it_is_mounted(tmp_path: Path) -> None:
    scratch, feature = tmp_path / "scratch", tmp_path / "features.d" / "causeway-scratch"
    scratch.mkdir()

    def say(before: str = "") -> str:
        command = f"{before} {SCRIPT} {scratch} {feature}"
        done = subprocess.run(["unshare", "--mount", "sh", "-euc", command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert str(scratch) in say()
    assert feature.read_text() == f"{SCRATCH_MISSING}=true\n"
    assert [path.name for path in feature.parent.iterdir()] == [feature.name], "nothing else is read"
    mount = f"mount -t tmpfs none {scratch};"
    assert say(mount) == ""
    assert not feature.exists()
    assert say(mount) == "", "there was nothing to take away"


def test_the_file_is_where_node_feature_discovery_looks() -> None:
    """The same folder as of the gpu cookbook, whose file has another name."""
    attributes = (COOKBOOKS / "storage/attributes/default.rb").read_text()
    gpu = (COOKBOOKS / "gpu/libraries/health_settings.rb").read_text()
    folder = "/etc/kubernetes/node-feature-discovery/features.d/"
    assert f"'{folder}causeway-scratch'" in attributes
    assert f"'{folder}causeway-gpu'" in gpu
