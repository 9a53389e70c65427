"""How long Chef's node objects take, and what is rendered beside them: ``python -m benchmarks.nodes``."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Measured, call
from benchmarks.specs import SIZES, Size, big
from infra.load import load
from infra.model import Cluster
from infra.render.chef import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock


def cluster(size: Size) -> Cluster:
    """A cluster of that size."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "big.yaml"
        path.write_text(big(size.regions, size.sites, size.pools, size.nodes), encoding="utf-8")
        return resolve(load(path).spec, Lock(), "big")[0]


def measure(name: str = "100x") -> tuple[Size, Measured]:
    """A size, and what rendering takes."""
    size = SIZES[name]
    found = cluster(size)
    files = render(found)
    assert sum(path.startswith("nodes/") for path in files) == size.nodes + len(found.instances)
    return size, call(lambda: render(found))


def main() -> None:
    """Print it."""
    size, found = measure()
    sys.stdout.write(f"{size.nodes:,} nodes: {found.seconds:.2f} s\n")


if __name__ == "__main__":
    main()
