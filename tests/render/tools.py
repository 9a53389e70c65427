"""Rendered files in the hands of the programs that will read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.files import Files


def needs(package: str, *commands: str) -> pytest.MarkDecorator:
    """Skips a test where a program of a Debian package is missing."""
    missing = [command for command in commands or (package,) if shutil.which(command) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs the package {package}")


def run(*command: str | Path, folder: Path | None = None) -> str:
    """What a program prints, errors after the rest; fails with that if it does."""
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1"}  # Terraform asks no network for a newer one
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def write(folder: Path, files: Files) -> None:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
