"""The client as a process: what it runs, and how it ended."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Finished:
    """A finished ``causeway``: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value


Causeway = Callable[..., Finished]


@dataclass(frozen=True)
class Laptop:
    """A person's shell in a folder: runs the client, whichever Python has it."""

    folder: Path
    environment: Mapping[str, str]

    def __call__(self, *arguments: str) -> Finished:
        process = self.begin(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with process:
            out, err = process.communicate(timeout=300)
        return Finished(process.returncode, out, err)

    def begin(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """``causeway`` as a process; ``options`` are those of Popen."""
        command = [sys.executable, "-m", "causeway", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **options)


SYSTEM_PYTHON = "/usr/bin/python3"
"""Debian's, with torch."""


def need_torch() -> None:
    """Skips a test where there is no torch. For a fixture: not each worker that collects should look."""
    # Not by an import, which takes as long as a short test.
    looks = "from importlib.util import find_spec as find; print(*find('torch').submodule_search_locations)"
    found = subprocess.run([SYSTEM_PYTHON, "-c", looks], capture_output=True, text=True, check=False)
    if found.returncode != 0 or not Path(found.stdout.strip(), "distributed/run.py").exists():
        pytest.skip("no python3-torch: 'tests/packages.sh' installs it")


def program(folder: Path, text: str) -> None:
    """Writes ``train.py``."""
    (folder / "train.py").write_text(textwrap.dedent(text), encoding="utf-8")
