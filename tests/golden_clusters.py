"""Clusters of the golden folders, resolved once a process."""

from __future__ import annotations

from functools import cache

from golden_folders import GOLDEN, LOCK, SPEC

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
