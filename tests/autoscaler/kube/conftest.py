"""The API of this process, begun for each test, and a real one for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from autoscaler.apiserver import ApiServer, serving
from autoscaler.kube.account import acting
from autoscaler.kube.clusters import Cluster
from kube.plane import Plane, planes


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving() as api:
        yield api


@pytest.fixture
def near(server: ApiServer, tmp_path: Path) -> Cluster:
    """The one of this process."""
    return Cluster.of(server.kubeconfig(tmp_path))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with planes(tmp_path_factory.mktemp("kube")) as plane:
        yield plane


@pytest.fixture(scope="session")
def real(plane: Plane) -> Cluster:
    """An administrator of the real one."""
    return Cluster.of(plane.kubeconfig)


@pytest.fixture(scope="session")
def acting_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Another, with Kubernetes' controllers and its scheduler."""
    with acting(tmp_path_factory.mktemp("acting")) as plane:
        yield plane


@pytest.fixture(params=["here", "real"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of them."""
    chosen: Cluster = request.getfixturevalue("near" if request.param == "here" else "real")
    return chosen
