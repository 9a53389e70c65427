"""Other programs, run for what they say."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from kubernetes_node.settings import Failed


def run(*command: str | Path, stdin: str | None = None, seconds: float = 300) -> str:
    """What a program prints. Failed where it fails, or is not there, or takes too long."""
    ended = attempt(command, stdin, seconds)
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip()
        raise Failed(f"{words(command)}: exit code {ended.returncode}: {said}")
    return ended.stdout


def attempt(
    command: Sequence[str | Path], stdin: str | None = None, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """How a program ends. Failed where it is not there, or takes too long."""
    try:
        return subprocess.run(
            list(map(str, command)), input=stdin, capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError as problem:
        raise Failed(f"{command[0]} is not here") from problem
    except subprocess.TimeoutExpired as problem:
        raise Failed(f"{words(command)} did not end within {seconds:.0f} s") from problem


def words(command: Sequence[str | Path]) -> str:
    """The program and its verb: arguments may be long."""
    return " ".join(map(str, command[:3]))
