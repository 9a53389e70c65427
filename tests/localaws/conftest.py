"""Real Terraform on embedded clouds: one provider for all roots, several roots at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.drive import localaws as process
from localaws.place import VERSIONS, Life, Place, run

ROOTS = Path(__file__).parent / "roots"

TOGETHER = 4
"""Roots that are applied at a time. They mostly sleep: Terraform's provider waits before it first asks."""


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Terraform was initialised, once for all roots."""
    folder = tmp_path_factory.mktemp("provider")
    (folder / "versions.tf").write_text(VERSIONS)
    done = run(folder, folder / ".terraform", "init", env={})
    assert done.code == 0, done
    return folder


@pytest.fixture(scope="session")
def settle(provider: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Place]]:
    """Makes a place: ``settle("network")`` of a folder in ``roots``."""
    places: list[Place] = []

    def make(root: str, **more: str) -> Place:
        folder = tmp_path_factory.mktemp(root) / "root"
        shutil.copytree(ROOTS / root, folder)
        for name in ("versions.tf", ".terraform.lock.hcl"):
            shutil.copy(provider / name, folder / name)
        server = process.start(folder.parent / "aws", root)
        places.append(Place(folder, server, provider / ".terraform", more))
        return places[-1]

    yield make
    for place in places:
        process.stop(place.server.folder)


@pytest.fixture(scope="session")
def lives(
    settle: Callable[..., Place], request: pytest.FixtureRequest
) -> Iterator[Mapping[str, Future[Life]]]:
    """The life of each root that a test asks for, all started at once."""

    def live(root: str) -> Life:
        place = settle(root)
        return Life(
            place.apply(),
            place.plan(),
            place.terraform("output", "-json"),
            place.destroy(),
            process.inventory(place.server),
        )

    wanted = sorted(
        {
            str(item.callspec.params["root"])
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
            and "root" in item.callspec.params
        },
        key=lambda root: SLOW.index(root) if root in SLOW else len(SLOW),
    )
    with ThreadPoolExecutor(TOGETHER) as pool:
        yield {root: pool.submit(live, root) for root in wanted}


SLOW = ["services", "storage", "vpn", "interconnect"]
"""They go first."""
