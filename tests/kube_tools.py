"""Kubernetes' own programs, where there are any: as KUBEBUILDER_ASSETS names them, the way controllers' tests
do (kubebuilder, "envtest"), in ``.venv-tools`` (``make tools``), or on PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalogue import releases

_OURS = Path(__file__).parents[1] / ".venv-tools" / "bin"

_CHARTS = os.environ.get("CAUSEWAY_CHARTS")
"""Read at once: tests run without variables of ours."""

_VERSION = {
    "kube-apiserver": ("--version",),
    "kubectl": ("version", "--client"),
    # Helm's own version, and that of the Kubernetes client in it.
    "helm": ("version", "--template", "{{.Version}}, for Kubernetes {{.KubeClientVersion}}"),
}


@cache
def find(name: str) -> str | None:
    """The path of a program; None where it is not found."""
    # Ours before PATH: distributions have a kubectl that is years old.
    folders = [os.environ.get("KUBEBUILDER_ASSETS", ""), str(_OURS), os.environ["PATH"]]
    return shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder))


def need(name: str) -> str:
    """The path of a program. Without it, the test is skipped and says so; so it is with a kubectl or Helm
    more than one minor away from the API server (Kubernetes, "Version Skew Policy")."""
    path = find(name)
    if path is None:
        pytest.skip(
            f"{name} not found: KUBEBUILDER_ASSETS names its folder; 'make tools' for kubectl and Helm"
        )
    if name in ("kubectl", "helm") and (problem := skew(name, version(path), server_minor())):
        pytest.skip(f"{path}: {problem}; 'make tools' installs one that does")
    return path


def kubectl() -> str:
    return need("kubectl")


def helm() -> str:
    return need("helm")


def chart(name: str) -> Path:
    """A chart's folder below the one that CAUSEWAY_CHARTS names, each as ``helm pull --untar`` leaves it.
    Without it, the test is skipped and says so."""
    if not _CHARTS:
        pytest.skip("CAUSEWAY_CHARTS names no folder of charts")
    path = Path(_CHARTS) / name
    if not path.is_dir():
        pytest.skip(f"{_CHARTS} has no chart {name}")
    return path


def templated(name: str, values: Mapping[str, Any] | None = None, *options: str) -> list[dict[str, Any]]:
    """What Helm makes of a chart and these values, with its kinds."""
    words = ["template", name, str(chart(name)), "--include-crds", "--values", "-", *options]
    text = yaml.safe_dump(dict(values or {}))
    done = subprocess.run([helm(), *words], input=text, check=True, capture_output=True, text=True)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # The other takes seconds.
    return [each for each in yaml.load_all(done.stdout, loader) if each]


@cache
def version(path: str) -> str:
    """What a program says of its version, on one line."""
    words = _VERSION[Path(path).name]
    done = subprocess.run([path, *words], capture_output=True, text=True, timeout=60)
    return (done.stdout.strip() or done.stderr.strip()).split("\n")[0]


def server_minor() -> int:
    """That of the API server, without one the newest that we know."""
    server = find("kube-apiserver")
    minor = _minor(version(server) if server else releases.kubernetes_versions()[-1])
    assert minor is not None
    return minor


def skew(name: str, told: str, minor: int) -> str:
    """Why a client cannot be used with an API server of this minor, or nothing."""
    own = _minor(told)
    if own is not None and abs(own - minor) <= 1:
        return ""
    return f"{name} ({told}) does not fit Kubernetes 1.{minor}"


def _minor(told: str) -> int | None:
    """The minor of the Kubernetes version that ends a program's words."""
    numbers = re.search(r"v?1\.(\d+)[.\w+-]*$", told)
    return int(numbers[1]) if numbers else None


def header() -> list[str]:
    """Which programs tests use, a line each."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(_described, _VERSION))


def _described(name: str) -> str:
    path = find(name)
    return f"{name}: {path} ({version(path)})" if path else f"{name}: not found"
