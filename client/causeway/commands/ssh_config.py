"""``ssh-config``: connects ssh, scp, sftp and VS Code to a worker of a run, through ``causeway.sshd`` beside
it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from platformdirs import user_data_path

import causeway
from causeway.errors import CausewayError

_SSHD = Path(str(causeway.__file__)).with_name("sshd.py")


def ssh_config(run: str, worker: str | None, group: str | None, on: list[str]) -> int:
    """Print an entry of ssh_config(5) for a running worker. Returns the exit code of ``causeway shell``."""
    options = [
        *(["--worker", worker] if worker else []),
        *(["--group", group] if group else []),
        *(["--on", ",".join(on)] if on else []),
    ]
    shell = [sys.executable, "-m", "causeway", "shell", run, *options]
    asked = subprocess.run([*shell, "--", *_command("user")], stdout=subprocess.PIPE, text=True)
    if asked.returncode:
        return asked.returncode
    key = _key()
    name = f"{run}-{worker}" if worker else run
    command, identity = (text.replace("%", "%%") for text in (shlex.join([*shell, "--stdio"]), str(key)))
    # The API server or the machine's ssh, which carries the connection, has been verified.
    print(
        f"Host {name}\n"
        f"  User {asked.stdout.strip()}\n"
        f"  ProxyCommand {command}\n"
        f'  IdentityFile "{identity}"\n'
        "  IdentitiesOnly yes\n"
        "  StrictHostKeyChecking no\n"
        "  UserKnownHostsFile /dev/null\n"
        "  LogLevel ERROR"
    )
    return 0


def serving() -> tuple[str, ...]:
    """Return the command that serves one ssh connection of this laptop beside a worker."""
    return _command("serve", _key().with_suffix(".pub").read_text(encoding="ascii").strip())


def _command(*words: str) -> tuple[str, ...]:
    return ("python3", "-c", _SSHD.read_text(encoding="utf-8"), *words)


def _key() -> Path:
    """Return this laptop's key for such connections; nothing else accepts it. Raises CausewayError."""
    path = user_data_path("causeway") / "ssh" / "id_ed25519"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "causeway", "-f", str(path)], check=True
            )
        except FileNotFoundError:
            raise CausewayError("ssh-keygen not found on this machine: install OpenSSH's client") from None
        except subprocess.CalledProcessError as error:
            raise CausewayError(
                f"{path} cannot be created: ssh-keygen exited with {error.returncode}"
            ) from None
    return path
