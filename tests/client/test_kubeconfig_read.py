"""Ways to sign in that kubeconfigs have, each against a TLS server that verifies who comes."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from web import Handler, serving

from causeway.cluster.connection import Cluster, RefusedError
from causeway.errors import UnreachableError
from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.certificates import Pair

NAME = "api.test.internal"


@dataclass
class Server:
    """It says who comes."""

    address: str
    authority: Pair
    ada: Pair


class _Handler(Handler):
    def do_GET(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        found: Any = self.connection.getpeercert() or {}
        names = dict(part for row in found.get("subject", ()) for part in row)
        body = {
            "name": names.get("commonName"),
            "token": self.headers.get("Authorization"),
            "path": self.path,
        }
        code = {"/refused": 403, "/elsewhere": 302}.get(self.path, 200)
        data = json.dumps({"message": "no"} if code == 403 else body).encode()
        if self.path.startswith("/page"):
            data = b"<html>Welcome! Your room number, please.</html>\n"
        self.answer(code, data)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    now, life = datetime.now(UTC), timedelta(hours=1)
    authority = certificates.authority("test", now)
    own = certificates.server(authority, "api", [NAME], now, life)
    both = tmp_path_factory.mktemp("tls") / "both.pem"
    both.write_text(own.certificate + own.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate)
    context.load_cert_chain(both)
    context.verify_mode = ssl.CERT_OPTIONAL
    with serving(_Handler, context) as port:
        ada = certificates.client(authority, "ada", (), now, life)
        yield Server(f"https://127.0.0.1:{port}", authority, ada)


def written(folder: Path, server: Server, user: Any, *, cluster: Any = None) -> Path:
    data = base64.b64encode(server.authority.certificate.encode()).decode()
    one = {"server": server.address, "tls-server-name": NAME, "certificate-authority-data": data}
    context = {"cluster": "one", "user": "ada", "namespace": "team"}
    file = folder / "config"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "one", "cluster": cluster or one}],
        "contexts": [{"name": "here", "context": context}],
        "users": [{"name": "ada", "user": user}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


def by_data(folder: Path, server: Server) -> Path:
    user = {
        "client-certificate-data": base64.b64encode(server.ada.certificate.encode()).decode(),
        "client-key-data": base64.b64encode(server.ada.key.encode()).decode(),
    }
    return written(folder, server, user)


def by_files(folder: Path, server: Server) -> Path:
    """Beside the kubeconfig."""
    for name, text in (("ca", server.authority.certificate), ("ada.crt", server.ada.certificate)):
        (folder / name).write_text(text)
    (folder / "ada.key").write_text(server.ada.key)
    cluster = {"server": server.address, "tls-server-name": NAME, "certificate-authority": "ca"}
    user = {"client-certificate": "ada.crt", "client-key": str(folder / "ada.key")}
    return written(folder, server, user, cluster=cluster)


def by_token(folder: Path, server: Server) -> Path:
    return written(folder, server, {"token": "word"})


def by_program(folder: Path, server: Server) -> Path:
    """As `invoke kubeconfig --exec` writes it."""
    status = {"token": "word"}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    program = folder / "credential"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    program.chmod(0o755)
    about = {"apiVersion": credential["apiVersion"], "command": str(program), "interactiveMode": "Never"}
    return written(folder, server, {"exec": about})


@pytest.mark.parametrize(
    ("write", "name", "token"),
    [
        (by_data, "ada", None),
        (by_files, "ada", None),
        (by_token, None, "Bearer word"),
        (by_program, None, "Bearer word"),
    ],
)
def test_each_way_to_sign_in(
    write: Callable[[Path, Server], Path], name: str | None, token: str | None, server: Server, tmp_path: Path
) -> None:
    cluster = Cluster(str(write(tmp_path, server)))
    assert cluster.call("GET", "/x", labelSelector="a=b") == {
        "name": name, "token": token, "path": "/x?labelSelector=a%3Db",
    }  # fmt: skip
    assert cluster.namespace(None) == "team"
    assert (cluster.certificate is None) is (name is None)
    with pytest.raises(RefusedError, match=": no"):
        cluster.call("GET", "/refused")


def test_another_server_is_not_believed(server: Server, tmp_path: Path) -> None:
    file = by_token(tmp_path, server)
    file.write_text(file.read_text().replace(NAME, "api.other.internal"))
    with pytest.raises(UnreachableError):
        Cluster(str(file)).call("GET", "/x")


def test_an_answer_that_is_not_the_clusters_is_no_answer(server: Server, tmp_path: Path) -> None:
    """A page to sign in to a hotel's network; a ConfigMap that is not what it should be."""
    cluster = Cluster(str(by_token(tmp_path, server)))
    for path in ("/page", "/elsewhere"):
        with pytest.raises(UnreachableError):
            cluster.call("GET", path)
    with pytest.raises(UnreachableError):
        list(cluster.watch("/page", 1))
    with pytest.raises(UnreachableError):
        _ = cluster.offer


@pytest.mark.parametrize("text", ["", "hello", "- a", "{a: [", "\xff", "clusters: 1\ncurrent-context: x\n"])
@pytest.mark.parametrize("several", [False, True])
def test_a_file_that_is_no_kubeconfig_is_said_in_our_words(text: str, several: bool, tmp_path: Path) -> None:
    """Of several files the library reads each."""
    file = tmp_path / "config"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UnreachableError) as raised:
        Cluster(f"{file}:{file}" if several else str(file)).call("GET", "/x")
    assert "indices" not in str(raised.value)
    assert "NoneType" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("current-context: here", "current-context: there", "there"),
        ("current-context: here", "other: here", "current-context"),
        ("token: word", "client-key-data: '*'", "config"),
        ("apiVersion", "- : :", "config"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(
    old: str, new: str, said: str, server: Server, tmp_path: Path
) -> None:
    file = by_token(tmp_path, server)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UnreachableError, match=said):
        Cluster(str(file)).call("GET", "/x")
    file.unlink()
    with pytest.raises(UnreachableError, match="KUBECONFIG"):
        Cluster(str(file)).call("GET", "/x")
