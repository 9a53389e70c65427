"""Our keys and certificates in the hands of the real `openvpn`, over loopback and without a TUN device.

Who is refused is asked of OpenSSL in ``test_pki_issuing.py``, and of a whole server in ``tests/network``.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from drive.pki.pki_lab import PASSPHRASE, Memory

from infra.drive.pki import Certificate, Pki, tls_crypt

pytestmark = pytest.mark.skipif(not shutil.which("openvpn"), reason="needs the package openvpn")

DONE = "Initialization Sequence Completed"
NAME = "vpn.lab.internal"
PATIENCE = 60.0


def genkey(folder: Path, name: str, *arguments: str) -> str:
    subprocess.run(["openvpn", *arguments, name], cwd=folder, check=True, capture_output=True)
    return (folder / name).read_text()


def openvpn_client_key(folder: Path, server_key: str, *metadata: str) -> str:
    """A client's key as `openvpn` makes it."""
    (folder / "server.key").write_text(server_key)
    command = ["openvpn", "--tls-crypt-v2", "server.key", "--genkey", "tls-crypt-v2-client", "client.key"]
    subprocess.run([*command, *metadata], cwd=folder, check=True, capture_output=True)
    return (folder / "client.key").read_text()


@dataclass
class Ends:
    """What the two ends of a handshake are given; a test spoils what it wants."""

    ca: str
    client_ca: str
    crl: str
    server: Certificate
    client: Certificate
    server_tls_crypt: str
    client_tls_crypt: str


@pytest.fixture
def now_pki() -> Pki:
    """With the real time, for `openvpn` has no other; made yesterday."""
    store = Memory()
    Pki(store, domain="lab.internal", clock=lambda: datetime.now(UTC) - timedelta(days=1)).create(
        PASSPHRASE, "lab"
    )
    return Pki(store, domain="lab.internal", clock=lambda: datetime.now(UTC))


@pytest.fixture
def ends(now_pki: Pki) -> Ends:
    client = now_pki.client("ada", "phone")
    return Ends(
        ca=now_pki.authorities(),
        client_ca=now_pki.authorities(),
        crl=now_pki.crl(),
        server=now_pki.server("lab", ["127.0.0.1"]),
        client=client,
        server_tls_crypt=now_pki.tls_crypt_server_key(),
        client_tls_crypt=client.tls_crypt,
    )


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Path]:
    """An `openvpn` and the log it writes; it ends with the block, and with us if we are killed."""
    log = folder / "log"
    common = ["--dev", "null", "--ifconfig-noexec", "--route-noexec", "--proto", "udp4", "--verb", "4"]
    modern = ["--tls-version-min", "1.2", "--data-ciphers", "AES-256-GCM", "--auth-nocache"]
    with log.open("w") as output:
        process = subprocess.Popen(
            ["timeout", "120", "openvpn", *common, *modern, *arguments],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


def seen(log: Path, *wanted: str) -> str:
    """Waits until the log has one of the texts, and returns that one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        for line in wanted:
            if line in text:
                return line
        time.sleep(0.05)
    raise AssertionError(f"none of {wanted} in:\n{log.read_text(errors='replace')}")


def written(folder: Path, **texts: str) -> Path:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


@contextlib.contextmanager
def shaking(ends: Ends, folder: Path, *of_server: str) -> Iterator[tuple[Path, Path]]:
    """The logs of a server and of a client that tries to reach it."""
    port = str(free_port())
    of, by = ends.server, ends.client
    server = written(
        folder / "s", ca=ends.ca, crl=ends.crl, cert=of.chain, key=of.key, tc=ends.server_tls_crypt
    )
    client = written(folder / "c", ca=ends.client_ca, cert=by.chain, key=by.key, tc=ends.client_tls_crypt)
    files = ["--ca", "ca", "--cert", "cert", "--key", "key", "--tls-crypt-v2", "tc"]
    serving = ["--tls-server", "--dh", "none", "--local", "127.0.0.1", "--port", port, "--crl-verify", "crl"]
    calling = ["--tls-client", "--nobind", "--remote", "127.0.0.1", port, "--connect-retry", "1"]
    with running(server, *serving, *files, "--remote-cert-tls", "client", *of_server) as server_log:
        seen(server_log, "link local (bound)")
        with running(
            client, *calling, *files, "--remote-cert-tls", "server", "--verify-x509-name", NAME, "name"
        ) as client_log:
            yield server_log, client_log


def test_keys_have_openvpn_s_own_form(tmp_path: Path) -> None:
    theirs = genkey(tmp_path, "s", "--genkey", "tls-crypt-v2-server")
    ours = tls_crypt.server_key()
    assert [len(line) for line in ours.splitlines()] == [len(line) for line in theirs.splitlines()]
    tls_crypt.check_server_key(theirs)
    client = openvpn_client_key(tmp_path, theirs, "YWRhQHBob25l")
    assert tls_crypt.metadata(theirs, client) == "ada@phone"
    mine = tls_crypt.client_key(theirs, "ada@phone")
    assert [len(line) for line in mine.splitlines()] == [len(line) for line in client.splitlines()]
    assert tls_crypt.metadata(theirs, mine) == "ada@phone"


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    server = tls_crypt.server_key()
    client = tls_crypt.client_key(server, "ada")
    lines = client.splitlines()
    cut, unlike = "\n".join(lines[:-1]), "\n".join([lines[0], *lines[2:]])
    stamped = openvpn_client_key(tmp_path, server)
    for wrong in ("", server, client.replace("client", "server"), unlike, cut, stamped):
        with pytest.raises(ValueError, match="tls-crypt-v2"):
            tls_crypt.metadata(server, wrong)
    with pytest.raises(ValueError, match="tls-crypt-v2"):
        tls_crypt.metadata(tls_crypt.server_key(), client)
    assert tls_crypt.metadata(server, tls_crypt.client_key(server, "x" * 733)) == "x" * 733
    with pytest.raises(ValueError, match="long"):
        tls_crypt.client_key(server, "x" * 734)


def test_a_client_comes_in_and_the_server_reads_whose_key_it_is(ends: Ends, tmp_path: Path) -> None:
    script = tmp_path / "whose"
    script.write_text(f'#!/bin/sh\ncat "$metadata_file" > {tmp_path}/metadata\n')
    script.chmod(stat.S_IRWXU)
    with shaking(ends, tmp_path, "--script-security", "2", "--tls-crypt-v2-verify", str(script)) as (
        server,
        client,
    ):
        seen(client, DONE)
        seen(server, DONE)
        seen(server, "VERIFY OK: depth=2, CN=lab VPN root")
        seen(server, "[ada@phone] Peer Connection Initiated")
        seen(client, "VERIFY X509NAME OK: CN=vpn.lab.internal")
    assert (tmp_path / "metadata").read_text() == f"ada@phone {ends.client.id}"


@pytest.mark.parametrize("server_s", [False, True])
def test_keys_by_openvpn_and_ours_open_each_other(ends: Ends, tmp_path: Path, server_s: bool) -> None:
    if server_s:
        ends.server_tls_crypt = genkey(tmp_path, "s.key", "--genkey", "tls-crypt-v2-server")
        ends.client_tls_crypt = tls_crypt.client_key(ends.server_tls_crypt, "ada")
    else:
        ends.client_tls_crypt = openvpn_client_key(tmp_path, ends.server_tls_crypt)
    with shaking(ends, tmp_path) as (server, client):
        seen(client, DONE)
        seen(server, DONE)


@pytest.mark.parametrize("renewed", ["server", "client"])
def test_both_ends_accept_the_other_s_intermediate(
    now_pki: Pki, ends: Ends, tmp_path: Path, renewed: str
) -> None:
    now_pki.renew_intermediate(PASSPHRASE)
    if renewed == "server":
        ends.server, ends.ca = now_pki.renew(ends.server), now_pki.authorities()
    else:
        ends.client, ends.client_ca = now_pki.client("grace"), now_pki.authorities()
        ends.client_tls_crypt = ends.client.tls_crypt
    ends.crl = now_pki.crl()
    assert ends.server.issuer != ends.client.issuer
    with shaking(ends, tmp_path) as (server, client):
        seen(client, DONE)
        seen(server, DONE)
