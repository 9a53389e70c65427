"""Which commit code is of, and what was changed since."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_LONGEST = 4500
"""Characters of a difference that is taken down. A longer one is in the code that is shipped."""


@dataclass(frozen=True)
class Source:
    """As git knows it. Empty without git."""

    commit: str = ""
    branch: str = ""
    diff: str = ""
    """From the commit to what is shipped; of files that git tracks."""
    changed: int = 0
    """Lines of the difference."""


NO_SOURCE = Source()


def source_of(folder: Path) -> Source:
    """The commit and the difference of a folder."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD").strip()
    if not commit:
        return NO_SOURCE
    diff = _git(folder, "diff", "--no-ext-diff", "--no-color", "HEAD", "--", ".")
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip()
    shown = diff if len(diff) <= _LONGEST else ""
    return Source(commit, "" if branch == "HEAD" else branch, shown, len(diff.splitlines()))


def _git(folder: Path, *words: str) -> str:
    """What git prints; nothing where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")
