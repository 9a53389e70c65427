"""Real Terraform on embedded clouds: one provider for all roots."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.drive import localaws as process
from localaws.place import VERSIONS, Place, run

ROOTS = Path(__file__).parent / "roots"


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
    """Makes a place: ``settle("web_identity")`` of a folder in ``roots``."""
    places: list[Place] = []

    def make(root: str, **more: str) -> Place:
        roots = tmp_path_factory.mktemp(root) / "roots"
        shutil.copytree(ROOTS, roots)
        folder = roots / root
        for name in ("versions.tf", ".terraform.lock.hcl"):
            shutil.copy(provider / name, folder / name)
        server = process.start(roots.parent / "aws", root)
        places.append(Place(folder, server, provider / ".terraform", more))
        return places[-1]

    yield make
    for place in places:
        process.stop(place.server.folder)
