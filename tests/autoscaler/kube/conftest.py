"""The API of this process, begun for each test, and a real one for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from autoscaler.apiserver import ApiServer, serving
from autoscaler.kube.clusters import Cluster
from drive.kubernetes.apiserver import NAME, Server, running
from stores import cluster_keys

from infra.drive.kubernetes import access
from infra.drive.kubernetes.access import Endpoint


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving() as api:
        yield api


@pytest.fixture
def near(server: ApiServer, tmp_path: Path) -> Cluster:
    """The one of this process."""
    return Cluster.of(server.kubeconfig(tmp_path))


@pytest.fixture(scope="session")
def really(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Cluster]]:
    folder = tmp_path_factory.mktemp("kube")
    keys = cluster_keys(folder)
    with (
        running(folder, keys) as api,
        access.opened(folder / "build", Endpoint(NAME, api.address), keys.ca) as admin,
    ):
        yield api, Cluster.of(admin.kubeconfig)


@pytest.fixture(scope="session")
def real(really: tuple[Server, Cluster]) -> Cluster:
    """An administrator of the real one."""
    return really[1]


@pytest.fixture(params=["here", "real"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of them."""
    chosen: Cluster = request.getfixturevalue("near" if request.param == "here" else "real")
    return chosen
