"""Kubernetes' own programs, where there are any: on PATH, in ``.venv-tools`` (``make packages``), or as
KUBEBUILDER_ASSETS names them, the way controllers' tests do (kubebuilder, "envtest")."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

_OURS = Path(__file__).parents[1] / ".venv-tools" / "bin"


@cache
def find(name: str) -> str | None:
    """The path of a program; None where there is none."""
    # Ours before PATH: distributions have a kubectl that is years old.
    folders = [os.environ.get("KUBEBUILDER_ASSETS", ""), str(_OURS), os.environ["PATH"]]
    return shutil.which(name, path=os.pathsep.join(each for each in folders if each))


def need(name: str) -> str:
    """The path of a program; the test is skipped without, and says so."""
    found = find(name)
    if found is None:
        pytest.skip(f"no {name}: 'make packages' brings it, or KUBEBUILDER_ASSETS names its folder")
    return found


def kubectl() -> str:
    return need("kubectl")


def helm() -> str:
    return need("helm")
