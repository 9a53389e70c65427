"""Clusters of the golden folders, resolved once a process."""

from __future__ import annotations

from functools import cache

from golden_folders import GOLDEN, resolved, scenarios

from infra.model import Cluster


@cache
def golden(scenario: str) -> Cluster:
    """The cluster of a golden folder, with its lock."""
    return resolved(GOLDEN / scenario)[0]


def with_masters() -> list[str]:
    """The scenarios that have a cluster of Kubernetes."""
    return [each for each in scenarios() if golden(each).control_plane is not None]
