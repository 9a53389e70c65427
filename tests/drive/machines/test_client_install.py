"""The client that runs cookbooks is installed by real apt and dpkg, over a real sshd. Its packages are made
here: they hold a program that stands in for CINC and Chef, whose own sites tests do not reach."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from drive.machines.hosts import CHEF, Host, node_object, running
from drive.machines.test_converge_hosts import Silent
from machines.deb import Package

from infra.drive.machines.client import install
from infra.drive.machines.converge import Installing, Target, converge
from infra.drive.machines.payload import payload, shared
from infra.drive.machines.survey import survey
from infra.drive.ssh import CONFIG, opened
from infra.errors import DriveError
from infra.model.software import Client

Packaged: TypeAlias = Callable[[str, str], tuple[Client, Path]]
"""Name, version → a client, and its package."""

STATE = """\
dpkg-query -W -f '${db:Status-Abbrev}${Version}' cinc chef 2>/dev/null
readlink /usr/local/lib/causeway/client
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    folder = tmp_path / "hosts"
    folder.mkdir()
    with running(folder, "titan-01") as found:
        monkeypatch.setenv(CONFIG, str(found.config))
        yield found["titan-01"]


@pytest.fixture
def packaged(tmp_path: Path) -> Packaged:
    def make(name: str, version: str) -> tuple[Client, Path]:
        files = {f"/opt/{name}/bin/{name}-client": CHEF.encode()}
        file = Package(name, f"{version}-1", files).build(tmp_path)
        sums = {"amd64": hashlib.sha256(file.read_bytes()).hexdigest()}
        return Client(name, version, "https://mirror.example/client.deb", sums, None), file

    return make


def put(host: Host, client: Client, file: Path) -> bool:
    with opened(host.fqdn) as remote:
        return install(remote, client, lambda _client, _architecture: file)


def test_it_is_installed_once_held_and_found_by_the_survey(host: Host, packaged: Packaged) -> None:
    client, file = packaged("cinc", "18.7.10")
    assert put(host, client, file)
    assert host.shell(STATE) == "hi 18.7.10-1/opt/cinc/bin/cinc-client\n"
    assert not put(host, client, file)
    assert host.shell("ls /tmp").count("causeway-client") == 0
    with opened(host.fqdn) as remote:
        assert survey(remote).packages["cinc"] == "18.7.10-1"


def test_another_version_or_the_other_client_takes_its_place(host: Host, packaged: Packaged) -> None:
    put(host, *packaged("chef", "18.11.21"))
    put(host, *packaged("cinc", "18.7.10"))
    assert host.shell(STATE) == "hi 18.7.10-1/opt/cinc/bin/cinc-client\n", "the other one is gone"
    put(host, *packaged("cinc", "18.0.1"))
    assert host.shell(STATE).startswith("hi 18.0.1-1"), "older ones too"


def test_another_package_than_the_pinned_is_refused(host: Host, packaged: Packaged) -> None:
    put(host, *packaged("cinc", "18.7.10"))
    client, _ = packaged("cinc", "18.8.0")
    _, other = packaged("cinc", "18.9.9")
    with pytest.raises(DriveError, match="pinned"):
        put(host, client, other)
    assert host.shell(STATE).startswith("hi 18.7.10-1")
    assert host.shell("ls /tmp").count("causeway-client") == 0


def test_a_changed_pin_reaches_a_machine_that_has_a_client(
    host: Host, tmp_path: Path, packaged: Packaged
) -> None:
    build = tmp_path / "build"
    (build / "chef" / "nodes").mkdir(parents=True)
    (build / "chef" / "nodes" / "titan-01.json").write_text(node_object("titan-01"))
    (build / "chef" / "client.rb").write_text("")
    (tmp_path / "cookbooks").mkdir()
    target = Target(
        "titan-01",
        host.fqdn,
        payload(build, "titan-01", "lab", (), shared(build, tmp_path / "cookbooks")),
    )

    def run(version: str, *, why_run: bool = False) -> None:
        client, file = packaged("cinc", version)
        installing = Installing(client, lambda _client, _architecture: file)
        (outcome,) = converge(
            build, [target], why_run=why_run, at_once=1, watcher=Silent(), installing=installing
        ).outcomes
        assert outcome.phase == "done", outcome.error

    run("18.7.10")
    assert "hi 18.7.10-1" in host.shell(STATE)
    run("18.8.0", why_run=True)
    assert "hi 18.7.10-1" in host.shell(STATE), "a why-run installs nothing"
    run("18.8.0")
    assert "hi 18.8.0-1" in host.shell(STATE)
