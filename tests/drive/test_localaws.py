"""The process of the embedded AWS: started, found again, stopped, lost."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from infra.drive import localaws
from infra.drive.localaws import Server
from infra.errors import LocalAwsError

STATE = {
    "version": 4,
    "resources": [
        {"mode": "managed", "instances": [{"index_key": "a"}, {"index_key": "b"}]},
        {"mode": "data", "instances": [{}]},
        {"mode": "managed", "instances": [{}]},
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "lab" / "aws"
    yield path
    localaws.stop(path)


@pytest.fixture
def server(folder: Path) -> Server:
    return localaws.start(folder, "lab")


def ask(server: Server, path: str, headers: dict[str, str]) -> int:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_found_again_until_it_is_stopped(server: Server, folder: Path) -> None:
    assert stat.S_IMODE((folder / "server.json").stat().st_mode) == 0o600
    assert localaws.status(folder) == server
    assert localaws.start(folder, "lab") == server
    assert localaws.inventory(server) == {}
    other = localaws.start(folder.parent / "other", "other")
    assert other.port != server.port
    localaws.stop(other.folder)
    assert localaws.status(folder) == server
    assert localaws.stop(folder)
    assert not psutil.pid_exists(server.pid)
    assert localaws.status(folder) is None
    assert not localaws.stop(folder)


def test_the_next_one_has_the_same_port_and_an_empty_cloud(server: Server, folder: Path) -> None:
    localaws.stop(folder)
    after = localaws.start(folder, "lab")
    assert (after.port, after.environment) == (server.port, "lab")
    assert after.nonce != server.nonce
    assert after.started > server.started


def test_two_at_once_start_one(folder: Path) -> None:
    servers: list[Server] = []
    threads = [
        threading.Thread(target=lambda: servers.append(localaws.start(folder, "lab"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(servers) == 3
    assert len(set(servers)) == 1


def test_a_stranger_on_its_port_is_not_taken_for_it(server: Server, folder: Path) -> None:
    path = folder / "server.json"
    row = path.read_text()
    path.write_text(json.dumps({**json.loads(row), "nonce": "of an earlier one"}))
    assert localaws.status(folder) is None
    path.write_text(row)


@pytest.mark.parametrize("row", [None, "", "{", "[]", "{}", '{"port": 1}'])
def test_a_spoilt_memory_is_no_server(tmp_path: Path, row: str | None) -> None:
    if row is not None:
        (tmp_path / "server.json").write_text(row)
    assert localaws.status(tmp_path) is None
    assert not localaws.stop(tmp_path)


@pytest.mark.parametrize(
    "headers", [{"Host": "rebound.example.org"}, {"Origin": "https://example.org"}], ids=["name", "page"]
)
def test_web_pages_are_not_served(server: Server, headers: dict[str, str]) -> None:
    assert ask(server, "/_causeway/health", headers) == 403
    assert ask(server, "/a-bucket", headers) == 403


def test_control_needs_the_nonce(server: Server) -> None:
    assert ask(server, "/_causeway/health", {}) == 403
    assert ask(server, "/_causeway/health", {"X-Causeway-Nonce": server.nonce}) == 200
    assert ask(server, "/_causeway/other", {"X-Causeway-Nonce": server.nonce}) == 404


def test_an_answer_that_never_comes_names_the_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localaws, "_MODULE", "infra.localaws.no_such_module")
    with pytest.raises(LocalAwsError) as caught:
        localaws.start(folder, "lab")
    assert str(folder.parent / "aws.log") in str(caught.value)
    assert "no_such_module" in str(caught.value)


def test_programs_reach_it_and_nothing_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    monkeypatch.setenv("AWS_PROFILE", "research")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    for name, value in localaws.environment(server, "eu-west-1").items():
        monkeypatch.setenv(name, value)
    session = boto3.Session()
    assert session.region_name == "eu-west-1"
    ec2 = session.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    assert localaws.inventory(server)["eu-west-1"]["ec2.vpcs"] == [vpc]
    ec2.delete_vpc(VpcId=vpc)
    assert localaws.inventory(server) == {}


def test_lost(server: Server, folder: Path) -> None:
    state = folder.parent / "terraform.tfstate"
    localaws.check(server, state, "--env lab")
    state.write_text(json.dumps(STATE))
    localaws.check(server, state, "--env lab")  # written while it lives
    os.kill(server.pid, signal.SIGKILL)
    localaws._LIVING[-1].wait()
    assert localaws.status(folder) is None
    after = localaws.start(folder, "lab")
    with pytest.raises(LocalAwsError) as caught:
        localaws.check(after, state, "--env lab --rehearse")
    why = str(caught.value)
    assert "3 resources" in why
    assert why.endswith("invoke local.reset --env lab --rehearse")
    assert str(state) in why
    state.write_text(json.dumps(STATE | {"resources": []}))
    os.utime(state, (0, 0))
    localaws.check(after, state, "--env lab")


def test_reset_moves_the_state_aside(server: Server, folder: Path) -> None:
    state = folder.parent / "terraform.tfstate"
    state.write_text("one")
    os.utime(state, (1, 1))
    first = localaws.reset(folder, state)
    assert localaws.status(folder) is None
    assert not state.exists()
    state.write_text("two")
    os.utime(state, (1, 1))
    second = localaws.reset(folder, state)
    assert first is not None
    assert second is not None
    assert (first.read_text(), second.read_text()) == ("one", "two")
    assert localaws.reset(folder, state) is None
