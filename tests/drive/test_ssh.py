"""Open connections to a machine, against a real OpenSSH server."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from drive.sshd import ssh_server

from infra.drive.ssh import CONFIG, HostKeyError, RemoteError, UnreachedError, opened

NAME = "titan-01.test.internal"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with ssh_server(tmp_path, NAME, "jump.test.internal") as config:
        monkeypatch.setenv(CONFIG, str(config))
        yield config


@pytest.mark.usefixtures("config")
def test_a_script_gets_its_arguments_and_its_input_stays_open() -> None:
    with opened(NAME) as remote:
        assert remote.run('printf "%s|" "$@"', "a b", "$HOME", "it's") == (0, "a b|$HOME|it's|")
        # timeout(1): 124 where the time was up before the command ended.
        assert remote.run("timeout 0.2 cat", check=False)[0] == 124
        with pytest.raises(RemoteError) as caught:
            remote.run("echo reason >&2; exit 3")
        assert caught.value.code == 3
        # ssh's own errors have the same code.
        assert remote.run("exit 255", check=False)[0] == 255


def test_what_a_person_has_for_sessions_of_their_own_is_no_obstacle(config: Path, tmp_path: Path) -> None:
    """A command, forwards, a proxy that does not end with its input, a login that prints half a line."""
    proxy, started = tmp_path / "proxy", tmp_path / "pid"
    proxy.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $! >{started}\nexec /usr/sbin/sshd -i -f {tmp_path}/sshd_config\n"
    )
    proxy.chmod(0o755)
    config.write_text(
        f"Host {NAME}\n  RemoteCommand sleep 60\n  LocalForward {tmp_path}/socket 127.0.0.1:22\n"
        f"  ExitOnForwardFailure yes\n  ProxyCommand {proxy}\n{config.read_text()}"
    )
    with opened(NAME) as first, opened(NAME) as second:
        assert [each.run("echo here")[1].strip() for each in (first, second)] == ["here", "here"]
    left = subprocess.run(["ps", "-o", "stat=", "-p", started.read_text()], capture_output=True, check=False)
    assert left.stdout.strip()[:1] in (b"", b"Z")


@pytest.mark.usefixtures("config")
def test_a_connection_that_is_closed_ends_what_runs_and_opens_no_other() -> None:
    with opened(NAME) as remote:
        threading.Timer(0.3, remote.close).start()
        with pytest.raises(UnreachedError):
            remote.run("sleep 60")
        with pytest.raises(UnreachedError):
            remote.run("true")


def test_without_the_name_in_dns_the_fix_is_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").touch()
    monkeypatch.setenv(CONFIG, str(tmp_path / "config"))
    with pytest.raises(UnreachedError) as caught, opened("titan-01.test.invalid"):
        pass
    assert CONFIG in str(caught.value)
    assert "--login" in str(caught.value)


@pytest.mark.usefixtures("config")
def test_a_file_is_uploaded_for_root_alone(tmp_path: Path) -> None:
    source, target = tmp_path / "package.deb", tmp_path / "copy.deb"
    source.write_bytes(os.urandom(300_000))
    with opened(NAME) as remote:
        remote.upload(source, str(target))
        assert target.read_bytes() == source.read_bytes()
        assert target.stat().st_mode & 0o777 == 0o600
        with pytest.raises(RemoteError):
            remote.upload(source, "/nowhere/copy.deb")


def test_a_key_is_learned_through_a_jump_host_and_under_the_name(config: Path, tmp_path: Path) -> None:
    known = tmp_path / "new" / "known_hosts"
    config.write_text(
        config.read_text()
        + f"Host 127.0.0.9\n  ProxyJump jump.test.internal\n  IdentityFile {tmp_path}/user\n"
        + f"  Port {_port(config)}\n  HostName 127.0.0.1\n  UserKnownHostsFile {known}\n"
    )
    login = "root@127.0.0.9"
    with pytest.raises(HostKeyError), opened(NAME, login=login):
        pass
    with pytest.raises(HostKeyError), opened(NAME, login=login, confirm=lambda _: False):
        pass
    assert not known.exists()
    shown: list[str] = []

    def confirm(fingerprint: str) -> bool:
        shown.append(fingerprint)
        return True

    with opened(NAME, login=login, confirm=confirm) as remote:
        assert remote.root is (os.geteuid() == 0)
    assert len(shown) == 1
    names, *key = known.read_text().split()
    assert key == (tmp_path / "host.pub").read_text().split()[:2]
    assert NAME in names.split(",")


@pytest.mark.usefixtures("config")
def test_a_temporary_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "known_hosts").unlink()
    # Not below pytest's own folder: a socket's path has at most 107 bytes.
    with TemporaryDirectory(prefix="a b%h ", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with opened(NAME, confirm=lambda _: True) as remote:
            assert remote.run("echo here") == (0, "here\n")
            assert [path.is_socket() for path in Path(folder).glob("*/s")] == [True]


@pytest.mark.parametrize("level", ["QUIET", "DEBUG3"])
def test_a_key_that_has_changed_is_not_asked_about(level: str, config: Path, tmp_path: Path) -> None:
    config.write_text(f"LogLevel {level}\n{config.read_text()}")
    other = (tmp_path / "user.pub").read_text().split()[1]
    (tmp_path / "known_hosts").write_text(f"machine ssh-ed25519 {other}\n")
    with pytest.raises(HostKeyError) as caught, opened(NAME, confirm=pytest.fail):
        pass
    shown = subprocess.run(
        ["ssh-keygen", "-lf", tmp_path / "host.pub"], check=True, capture_output=True, text=True
    )
    assert shown.stdout.split()[1] in str(caught.value)


def _port(config: Path) -> str:
    return next(line.split()[1] for line in config.read_text().splitlines() if "Port " in line)
