"""One call: what is tried again, what is given up, and who asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from autoscaler.apiserver import ApiServer
from autoscaler.kube.clusters import Cluster, even

from infra.autoscaler.kube.client import AwayError, Client, RefusedError, Stream
from infra.autoscaler.kube.credentials import Credentials
from infra.errors import UsageError


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def client(server: ApiServer, tmp_path: Path, slept: list[float]) -> Client:
    return Client(Credentials(server.kubeconfig(tmp_path)), chance=even, sleep=slept.append)


def test_a_refusal_is_told_in_the_servers_words(cluster: Cluster) -> None:
    with pytest.raises(RefusedError, match="nobody") as refused:
        cluster.client.get("/api/v1/nodes/nobody")
    assert (refused.value.code, refused.value.reason, refused.value.whole) == (404, "NotFound", True)
    with pytest.raises(RefusedError) as refused:
        cluster.client.get("/apis/no.such.group/v1/things")
    assert (refused.value.code, refused.value.whole) == (404, False)


def test_a_busy_server_is_asked_again_when_it_says(
    server: ApiServer, client: Client, slept: list[float]
) -> None:
    server.fail("GET", "/nodes", code=429, headers={"Retry-After": "3"})
    server.fail("GET", "/nodes", code=503)
    assert json.loads(client.get("/api/v1/nodes"))["items"] == []
    assert slept[0] == 3.0
    assert 0 < slept[1] < 3


def test_a_server_that_stays_ill_is_given_up(server: ApiServer, client: Client) -> None:
    server.fail("GET", "/nodes", code=500, times=100)
    with pytest.raises(RefusedError, match="500"):
        client.get("/api/v1/nodes")
    assert server.count("GET", "/nodes") == 4


def test_a_wait_beyond_the_time_is_not_begun(server: ApiServer, client: Client, slept: list[float]) -> None:
    server.fail("GET", "/nodes", code=429, headers={"Retry-After": "3600"}, times=100)
    with pytest.raises(RefusedError):
        client.get("/api/v1/nodes", total=20)
    assert slept == []


@pytest.mark.parametrize("how", ["cut", "half"])
def test_a_lost_answer_is_asked_for_again(server: ApiServer, client: Client, how: str) -> None:
    server.put("/api/v1/nodes", {"metadata": {"name": "a"}})
    server.fail("GET", "/nodes", how=how, times=2)
    assert len(json.loads(client.get("/api/v1/nodes"))["items"]) == 1


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_a_slow_answer_is_given_up(server: ApiServer, client: Client, how: str) -> None:
    server.put("/api/v1/nodes", {"metadata": {"name": "a"}})
    server.fail("GET", "/nodes", how=how, times=100)
    with pytest.raises(AwayError, match="/api/v1/nodes"):
        client.call("GET", "/api/v1/nodes", tries=1, total=0.3)


def test_lines_come_in_any_pieces() -> None:
    class Pieces:
        rest: ClassVar = [b"", b'"}', b'{"z', b'b"}\n\n{"x"}\n', b"", b'{"y"}\n', b'c"}\n', b"b", b'{"a']

        def read1(self, size: int) -> bytes:
            return self.rest.pop()

    stream = Stream(Pieces(), "/x")
    assert list(stream.batches()) == [[b'{"abc"}'], [b'{"y"}']]
    with pytest.raises(AwayError, match="/x"):
        list(stream.batches())


def test_nobody_there(server: ApiServer, client: Client) -> None:
    server.down()
    with pytest.raises(AwayError, match="/api/v1/nodes"):
        client.get("/api/v1/nodes")


def test_a_replaced_token_is_read_again(server: ApiServer, tmp_path: Path) -> None:
    """The kubelet replaces it each hour, and the old one ends."""
    at = 0.0
    credentials = Credentials(server.kubeconfig(tmp_path), clock=lambda: at)
    client = Client(credentials, chance=even, sleep=lambda _: None)
    client.get("/api/v1/nodes")
    server.tokens = {"new"}
    (tmp_path / "token").write_text("new\n")
    at = 20.0
    client.get("/api/v1/nodes")
    assert server.count("GET", "/nodes") == 3  # refused once, and not by much more than that
    server.tokens = {"newer"}
    (tmp_path / "token").write_text("newer")
    at = 100.0  # long enough to look by itself
    client.get("/api/v1/nodes")
    assert server.count("GET", "/nodes") == 4


def test_credentials_that_cannot_be_read_again_stay(server: ApiServer, tmp_path: Path) -> None:
    at = 0.0
    path = server.kubeconfig(tmp_path)
    client = Client(Credentials(path, clock=lambda: at), chance=even)
    client.get("/api/v1/nodes")
    path.write_text("apiVersion: v1\nclusters: [")  # somebody is writing it
    at = 1000.0
    client.get("/api/v1/nodes")


@pytest.mark.parametrize("text", ["", "[]", "clusters: [", "kind: Config", "current-context: x"])
def test_a_kubeconfig_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(UsageError, match="kubeconfig"):
        Credentials(path).way()


def test_no_kubeconfig_and_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UsageError, match="kubeconfig"):
        Credentials().way()


def test_a_pods_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    authority.write_text("an authority")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    at = 0.0
    credentials = Credentials(clock=lambda: at)
    way = credentials.way()
    assert (way.url, way.headers["authorization"]) == ("https://[fd00::1]:443", "bearer first")
    token.write_text("second")
    at = 61.0
    later = credentials.way()
    assert later.headers["authorization"] == "bearer second"
    assert later.pool is way.pool
    authority.write_text("another")
    at = 122.0
    assert credentials.way().pool is not way.pool


def test_a_command_that_gives_a_token(server: ApiServer, tmp_path: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "letmein"},
    }
    path = server.kubeconfig(tmp_path)
    made = json.loads(path.read_text())
    command = {"apiVersion": answer["apiVersion"], "command": "echo", "args": [json.dumps(answer)]}
    made["users"][0]["user"] = {"exec": {**command, "interactiveMode": "Never"}}
    path.write_text(json.dumps(made))
    assert Client(Credentials(path), chance=even).get("/api/v1/nodes")
