"""Commands on machines, over OpenSSH: the user's own configuration, keys, agent and jump hosts apply."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from infra.errors import DriveError

CONFIG: Final = "CAUSEWAY_SSH_CONFIG"
"""The environment variable that names a configuration file of its own, as ``ssh -F`` takes it."""

_UNREACHED: Final = 255
"""ssh(1): its own errors, which nothing else distinguishes from a command's exit code."""

_AS_ROOT: Final = 'if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n -- "$@"; fi'


class UnreachedError(DriveError):
    """A machine could not be reached, or did not let us in."""


class RemoteError(DriveError):
    """A command on a machine failed. ``code`` is its exit code."""

    def __init__(self, text: str, code: int) -> None:
        self.code = code
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, by the name that the user's SSH configuration or DNS knows."""

    name: str
    unshared: bool = field(default=False, kw_only=True)
    """Whether each command opens its own connection, even where ``ControlMaster`` shares one."""

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 60, shown: str = "") -> str:
        """Run a command there as root (through ``sudo -n`` for any other user), and give back what it prints.

        ``UnreachedError`` or ``RemoteError``, with what was said, and ``shown`` in place of the command.
        ``stdin`` never shows in a message.
        """
        shown = shown or " ".join(command)[:80]
        try:
            done = subprocess.run(
                self.command(command), input=stdin, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise UnreachedError(f"{self.name}: no answer to `{shown}` within {timeout:.0f} s") from None
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode == _UNREACHED:
            raise UnreachedError(
                f"{self.name}: can't be reached over SSH ({_last(said) or 'no reason given'}); try: ssh "
                f"{self.name}"
            )
        if done.returncode:
            raise RemoteError(
                f"{self.name}: `{shown}` failed: {_last(said) or f'exit code {done.returncode}'}",
                done.returncode,
            )
        return done.stdout.decode(errors="replace")

    def command(self, command: Sequence[str]) -> list[str]:
        """The whole command line of this machine, for who talks to the command while it runs."""
        own = ["-o", "ControlPath=none"] if self.unshared else []
        return [*client(), *own, "-T", self.name, "--", shlex.join(["sh", "-c", _AS_ROOT, "sh", *command])]


def settings() -> Path | None:
    """The configuration file that the environment names. ``UnreachedError`` if it is not there."""
    named = os.environ.get(CONFIG)
    if not named:
        return None
    if not Path(named).is_file():
        raise UnreachedError(f"{CONFIG} names {named}, which is not there")
    return Path(named)


def client() -> list[str]:
    """ssh(1) with its options, the machine's name to follow. It asks nobody anything."""
    ssh = shutil.which("ssh")
    if ssh is None:
        raise UnreachedError("ssh not found on PATH; install OpenSSH's client")
    config = settings()
    return [
        ssh,
        *(["-F", str(config)] if config else []),
        "-o", "BatchMode=yes",
        "-o", "ConnectTimeout=30",
        "-o", "ServerAliveInterval=10",
    ]  # fmt: skip


def _last(said: str) -> str:
    return said.splitlines()[-1] if said else ""
