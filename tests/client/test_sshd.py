"""One ssh connection on stdin and stdout (``causeway.sshd``): real ssh, scp, sftp and sshd."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from causeway import sshd

pytestmark = pytest.mark.skipif(
    shutil.which("sshd", path="/usr/sbin:/usr/bin") is None, reason="sshd not found (package openssh-server)"
)

STRANGER = 54777
"""A uid that no account has: that of a pod which mounts a home."""


@pytest.fixture
def home() -> Iterator[Path]:
    """Below a folder that others may enter, as pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="cw-", dir="/tmp") as folder:
        path = Path(folder, "home")
        path.mkdir()
        for each in (path, path.parent):
            each.chmod(0o777)
        yield path


def way_in(home: Path, *, stranger: bool, path: str = "/usr/bin:/bin") -> tuple[list[str], str]:
    """Options of ssh that lead to it, and the name of the user."""
    become = ["setpriv", "--reuid", str(STRANGER), "--clear-groups"] if stranger else []
    temporary = home.parent / "a b%h"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o777)
    own = [
        f"HOME={home}",
        f"PATH={path}",
        f"TMPDIR={temporary}",
        'GIVEN=a "b" \\c $d',
        "CUDA_VISIBLE_DEVICES=0,3",
    ]
    python = "/usr/bin/python3" if stranger else sys.executable
    words = [*become, "env", "-i", *own, python, "-c", Path(sshd.__file__).read_text()]
    asked = subprocess.run([*words, "user"], capture_output=True, text=True, check=True)
    key = home.parent / "key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    command = shlex.join([*words, "serve", key.with_suffix(".pub").read_text().strip()])
    script = home.parent / "way"
    script.write_text(f"#!/bin/sh\nexec {command}\n")
    script.chmod(0o755)
    given = {
        "ProxyCommand": str(script), "IdentityFile": str(key), "IdentitiesOnly": "yes", "BatchMode": "yes",
        "StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR",
    }  # fmt: skip
    return ["-F", "none", *(f"-o{name}={value}" for name, value in given.items())], asked.stdout.strip()


@pytest.mark.parametrize("stranger", [False, True])
def test_commands_files_and_ports_have_the_environment_that_it_was_given(
    home: Path, *, stranger: bool
) -> None:
    if stranger and os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    if stranger and not list(Path("/usr/lib").rglob("libnss_wrapper.so")):
        pytest.skip("libnss_wrapper.so not found (package libnss-wrapper)")
    options, user = way_in(home, stranger=stranger)
    target = f"{user}@worker"
    wanted = 'echo "$CUDA_VISIBLE_DEVICES/$GIVEN/$HOME"; id -u; id -un; exit 7'
    done = subprocess.run(["ssh", *options, target, wanted], capture_output=True, text=True)
    uid = STRANGER if stranger else os.getuid()
    assert done.stdout.splitlines() == [f'0,3/a "b" \\c $d/{home}', str(uid), user], done.stderr
    assert done.returncode == 7
    if stranger:
        assert user == "causeway"
    # Files, by SFTP.
    source = home.parent / "source"
    source.write_bytes(os.urandom(1 << 20))
    subprocess.run(["scp", "-q", *options, source, f"{target}:{home}/there"], check=True)
    subprocess.run(["scp", "-q", *options, f"{target}:{home}/there", home.parent / "back"], check=True)
    assert (home.parent / "back").read_bytes() == source.read_bytes()
    assert (home / "there").stat().st_uid == uid
    # A port over there, as VS Code reaches its server.
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(connection.recv(64).upper())

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        through = ["ssh", *options, "-W", f"127.0.0.1:{port}", target]
        asked = subprocess.run(through, input=b"hello", capture_output=True, timeout=60)
        assert asked.stdout == b"HELLO", asked.stderr


def test_a_program_that_lacks_is_named_with_its_package(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sshd, "_PROGRAMS", (str(home),))
    assert sshd.main(["serve", "ssh-ed25519 x"]) == 127
    assert "openssh-server" in capsys.readouterr().err
    options, user = way_in(home, stranger=False)
    other = home.parent / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    swapped = [each.replace(str(home.parent / "key"), str(other)) for each in options]
    refused = subprocess.run(["ssh", *swapped, f"{user}@worker", "true"], capture_output=True, text=True)
    assert (refused.returncode, "Permission denied" in refused.stderr) == (255, True)
