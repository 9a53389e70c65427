"""A real OpenSSH server on loopback, for one test, that lets one key in as the user who runs the test."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def ssh_server(folder: Path, *hosts: str) -> Iterator[Path]:
    """Runs one, known by the names ``hosts``; gives the client's configuration file."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if program is None or shutil.which("ssh") is None:
        pytest.skip("needs openssh-server and openssh-client")
    Path("/run/sshd").mkdir(exist_ok=True)  # where it drops its rights to, as Debian builds it
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPasswordAuthentication no\n"
    )
    host_key = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"machine {host_key[0]} {host_key[1]}\n")
    config = folder / "ssh_config"
    config.write_text(
        f"Host {' '.join(hosts)}\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/user\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
        "  HostKeyAlias machine\n  StrictHostKeyChecking yes\n"
    )
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    try:
        _until_it_answers(port, server, folder / "sshd.log")
        yield config
    finally:
        server.terminate()
        server.wait()


def _until_it_answers(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"sshd does not answer:\n{log.read_text()}")
