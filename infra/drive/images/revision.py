"""Which commit of the project an image is of."""

from __future__ import annotations

import subprocess
from pathlib import Path


def revision(project: Path) -> str:
    """The commit's hash, with ``-dirty`` where files differ from it; empty outside of a repository."""
    try:
        said = subprocess.run(
            ["git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
