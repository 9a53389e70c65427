"""How long everything takes that Kubernetes is told: ``python -m benchmarks.kubernetes``.

5,000 nodes in racks and as many pools as queues can tell apart, with 500 people in 20 groups, storage of each
kind, and every add-on that is on by default.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.measure import call
from benchmarks.specs import MOST_QUEUED, Size, big
from infra.load import load
from infra.model import Cluster
from infra.render.kubernetes import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

SIZE: Final = Size(regions=3, sites=50, pools=MOST_QUEUED, nodes=5000)
PEOPLE: Final = 500
GROUPS: Final = 20


def spec(size: Size, people: int = PEOPLE) -> str:
    """The YAML of a spec of that size with so many people."""
    base = big(size.regions, size.sites, size.pools, size.nodes)
    base = base.replace("roles: [site-gateway]", "roles: [site-gateway, nfs-server]", 1)
    return "\n".join([base.rstrip("\n"), *_storage(), *_access(people), ""])


def _storage() -> Iterator[str]:
    yield "storage:"
    yield "  efs: {home: {path: /home, access_points: {homes: {path: /homes}}}}"
    yield "  s3: {sets: {path: /data, read_only: true}}"
    yield "  nfs: {results: {site: rack-000, node: gateway-000, export: /srv/results, path: /results}}"
    yield "  volumes_quota: 1 TiB"


def _access(people: int) -> Iterator[str]:
    yield "access:"
    yield "  vpn: {prefix: 18}"
    yield "  groups:"
    for number in range(GROUPS):
        yield f"    group-{number:02}: {{gpu_quota: 8}}"
    yield "  users:"
    for number in range(people):
        yield f"    person-{number:03}: {{groups: [group-{number % GROUPS:02}]}}"


def cluster(size: Size, people: int = PEOPLE) -> Cluster:
    """A cluster of that size."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "big.yaml"
        path.write_text(spec(size, people), encoding="utf-8")
        return resolve(load(path).spec, Lock(), "big")[0]


def measure(size: Size = SIZE, people: int = PEOPLE) -> tuple[float, int]:
    """The seconds of processor time that rendering takes, and the bytes that it gives."""
    found = cluster(size, people)
    files = render(found)
    assert sum(text.count("\nkind: PersistentVolumeClaim\n") for text in files.values()) >= people
    return call(lambda: render(found)).cpu, sum(len(text.encode()) for text in files.values())


def main() -> None:
    """Print it."""
    seconds, given = measure()
    sys.stdout.write(f"{SIZE.nodes:,} nodes, {PEOPLE} people: {seconds:.2f} s, {given / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
