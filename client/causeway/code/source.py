"""The commit that code is based on, and the changes since."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_LONGEST = 4500
"""Maximum number of recorded characters of a difference. Longer ones can be derived from the shipped code."""


@dataclass(frozen=True)
class Source:
    """What git knows about the code. Empty without git."""

    commit: str = ""
    branch: str = ""
    diff: str = ""
    """Difference from the commit to the shipped files, for files tracked by git."""
    changed: int = 0
    """Number of changed lines."""


NO_SOURCE = Source()


def source_of(folder: Path) -> Source:
    """Return the commit and the difference of a folder."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD").strip()
    if not commit:
        return NO_SOURCE
    diff = _git(folder, "diff", "--no-ext-diff", "--no-color", "HEAD", "--", ".")
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip()
    shown = diff if len(diff) <= _LONGEST else ""
    return Source(commit, "" if branch == "HEAD" else branch, shown, len(diff.splitlines()))


def _git(folder: Path, *words: str) -> str:
    """Return git's output; empty if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")
