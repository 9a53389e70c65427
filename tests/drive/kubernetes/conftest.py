"""A cluster's keys, a real API server that was begun with them, and an administrator's way to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from drive.kubernetes import masters
from drive.kubernetes.apiserver import NAME, Server, running
from drive.machines.hosts import Hosts
from drive.machines.hosts import running as running_hosts
from kube_tools import kubectl as kubectl_program
from stores import local_store

from infra.drive.kubernetes import access, secrets
from infra.drive.kubernetes.access import Access, Endpoint
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.kubectl import Kubectl, Program
from infra.drive.kubernetes.secrets import Keys
from infra.drive.secrets.local import LocalStore
from infra.drive.ssh import CONFIG, Machine


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    folder = tmp_path_factory.mktemp("store")
    return local_store(folder)


@pytest.fixture(scope="session")
def keys(store: LocalStore) -> Keys:
    return secrets.made(store, datetime.now(UTC))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("api"), keys) as server:
        yield server


@pytest.fixture(scope="session")
def hosts(server: Server, keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A master of that server, over SSH, with a controller that signs."""
    folder = tmp_path_factory.mktemp("master")
    with (
        access.opened(folder / "build", Endpoint(NAME, server.address), keys.ca) as admin,
        running_hosts(folder, "master-1") as machines,
        masters.signer(admin, server.folder),
    ):
        masters.own_etc(machines["master-1"])
        masters.equip(machines["master-1"], folder, admin, keys.ca.certificate)
        yield machines


@pytest.fixture
def master(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv(CONFIG, str(hosts.config))
    return Machine(hosts["master-1"].fqdn)


@pytest.fixture
def admin(server: Server, keys: Keys, tmp_path: Path) -> Iterator[Access]:
    with access.opened(tmp_path / "build", Endpoint(NAME, server.address), keys.ca) as admin:
        yield admin


@pytest.fixture
def api(admin: Access) -> Api:
    return Api(admin)


@pytest.fixture
def kubectl(admin: Access) -> Kubectl:
    return Kubectl(Program(kubectl_program(), (1, 36)), admin)
