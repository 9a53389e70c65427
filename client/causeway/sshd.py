"""Serves one ssh connection on stdin and stdout, with the ``sshd`` that is installed beside a worker of a
run.

VS Code, ``scp`` and ``sftp`` use it. The command contains its text, so it needs Python 3.8 and nothing else:
``python3 -c TEXT serve KEY`` accepts the private part of KEY, and runs as the user and with the environment
of this process; ``python3 -c TEXT user`` prints that user's name. Exit code 127: a program is missing here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_NOBODY = "causeway"
"""Login for a user who is not in /etc/passwd."""
_PROGRAMS = (os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/sbin")
_WRAPPER = "libnss_wrapper.so"
_NOT_PASSED = ("_", "SHLVL", "PWD", "OLDPWD", "TERM", "USER", "LOGNAME", "MAIL", "SHELL")


def main(words: list[str]) -> int:
    """Run it; return the exit code."""
    if words[0] == "user":
        print(_user() or _NOBODY)
        return 0
    sshd, keygen = (shutil.which(name, path=os.pathsep.join(_PROGRAMS)) for name in ("sshd", "ssh-keygen"))
    if sshd is None or keygen is None:
        return _missing("sshd", "openssh-server")
    with tempfile.TemporaryDirectory(prefix="causeway-ssh-") as name:
        folder, env = Path(name), dict(os.environ)
        if not _user():
            if not _has_wrapper():
                return _missing(f"user {os.getuid()} is not in /etc/passwd, and {_WRAPPER}", "libnss-wrapper")
            env.update(_wrapped(folder, env))
        if os.getuid() == 0:
            # As sshd's service would do, for its unprivileged part.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        key = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host")]
        subprocess.run(key, env=env, check=True)
        (folder / "keys").write_text(words[1] + "\n", encoding="ascii")
        config = folder / "config"
        config.write_text(_config(folder, env), encoding="utf-8", errors="surrogateescape")
        return subprocess.call([sshd, "-i", "-e", "-f", str(config)], env=env)


def _user() -> str:
    """Return the login; empty if the user has no account."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _config(folder: Path, env: Mapping[str, str]) -> str:
    """Return an sshd_config(5). The client on stdin is already authenticated."""
    values = {
        name: value.replace("\\", "\\\\").replace('"', '\\"')
        for name, value in env.items()
        if name not in _NOT_PASSED and not name.startswith(("SSH_", "BASH_FUNC_")) and "\n" not in value
    }
    lines = (
        f'HostKey "{folder}/host"',
        f'AuthorizedKeysFile "{str(folder).replace("%", "%%")}/keys"',
        "StrictModes no",  # its folder is in one that others may write to
        "PidFile none",
        "UsePAM no",
        "PasswordAuthentication no",
        "PrintMotd no",
        "LogLevel ERROR",
        "Subsystem sftp internal-sftp",
        "SetEnv " + " ".join(f'"{name}={value}"' for name, value in values.items()),
    )
    return "\n".join(lines) + "\n"


def _wrapped(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Add an account for a user that no image knows (nss_wrapper(1)), for sshd and what it starts."""
    shell = shutil.which("bash") or "/bin/sh"
    own = f"{_NOBODY}:x:{os.getuid()}:{os.getgid()}::{env.get('HOME', '/')}:{shell}\n"
    for name, line in (("passwd", own), ("group", f"{_NOBODY}:x:{os.getgid()}:\n")):
        text = Path("/etc", name).read_text(encoding="utf-8", errors="surrogateescape")
        (folder / name).write_text(text + line, encoding="utf-8", errors="surrogateescape")
    return {
        "LD_PRELOAD": " ".join(filter(None, (env.get("LD_PRELOAD"), _WRAPPER))),
        "NSS_WRAPPER_PASSWD": str(folder / "passwd"),
        "NSS_WRAPPER_GROUP": str(folder / "group"),
    }


def _has_wrapper() -> bool:
    """Whether the loader finds it; otherwise it prints an error (ld.so(8))."""
    env = {**os.environ, "LD_PRELOAD": _WRAPPER}
    return not subprocess.run(["true"], env=env, stderr=subprocess.PIPE).stderr


def _missing(what: str, package: str) -> int:
    print(f"causeway: {what} not found here: install the package {package} in the image", file=sys.stderr)
    return 127


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
