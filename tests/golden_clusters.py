"""Clusters of the golden folders, resolved once a process."""

from __future__ import annotations

from functools import cache

from golden_folders import GOLDEN, LOCK, SPEC, scenarios

from infra.load import load
from infra.model import Cluster
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import parse


@cache
def golden(scenario: str) -> Cluster:
    """The cluster of a golden folder, with its lock."""
    folder = GOLDEN / scenario
    kept = parse((folder / LOCK).read_text(encoding="utf-8"), LOCK)
    return resolve(load(folder / SPEC).spec, kept, scenario)[0]


def with_masters() -> list[str]:
    """The scenarios that have a cluster of Kubernetes."""
    return [each for each in scenarios() if golden(each).control_plane is not None]
