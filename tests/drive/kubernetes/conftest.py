"""A cluster's keys, a control plane that was begun with them, and an administrator's way to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from drive.kubernetes import masters
from drive.machines.hosts import Hosts
from drive.machines.hosts import running as running_hosts
from kube.plane import SIGNERS, Plane, planes
from kube_tools import kubectl as kubectl_program
from stores import local_store

from infra.drive.kubernetes import access, secrets
from infra.drive.kubernetes.access import Access
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


AUDIT_LOG, SIGN_IN = "audit.log", "sign-in.yaml"
"""Files of the API server: what it writes of whom, and the issuers whose tokens it takes."""
NO_ISSUERS = {
    "apiVersion": "apiserver.config.k8s.io/v1beta1",
    "kind": "AuthenticationConfiguration",
    "jwt": [],
}
_POLICY = Path(__file__).parents[3] / "cookbooks/kubernetes/files/audit-policy.yaml"


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("api")
    (folder / SIGN_IN).write_text(json.dumps(NO_ISSUERS))
    audit = [f"--audit-policy-file={_POLICY}", f"--audit-log-path={folder / AUDIT_LOG}"]
    flags = [*audit, "--audit-log-mode=blocking-strict", f"--authentication-config={folder / SIGN_IN}"]
    with planes(folder, keys, flags=flags) as plane:
        yield plane


@pytest.fixture(scope="session")
def hosts(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A master of that control plane, over SSH, with a controller that signs."""
    folder = tmp_path_factory.mktemp("master")
    with running_hosts(folder, "master-1") as machines, plane.controllers(*SIGNERS):
        masters.own_etc(machines["master-1"])
        masters.equip(machines["master-1"], folder, plane)
        yield machines


@pytest.fixture
def master(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv(CONFIG, str(hosts.config))
    return Machine(hosts["master-1"].fqdn)


@pytest.fixture
def admin(plane: Plane, tmp_path: Path) -> Iterator[Access]:
    with access.opened(tmp_path / "build", plane.endpoint, plane.keys.ca) as admin:
        yield admin


@pytest.fixture
def api(admin: Access) -> Api:
    return Api(admin)


@pytest.fixture
def kubectl(admin: Access) -> Kubectl:
    return Kubectl(Program(kubectl_program(), (1, 36)), admin)
