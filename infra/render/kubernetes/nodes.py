"""Which machines are nodes, and where they stand."""

from __future__ import annotations

from typing import Final

from infra.model import Cluster

WORKERS: Final = frozenset({"worker", "gpu-worker"})
"""Roles of physical machines that are nodes."""


def sites_of_nodes(cluster: Cluster) -> tuple[str, ...]:
    """Sites that have nodes, or may have: regions of the control plane and of pools, racks with workers."""
    found = {group.region for pool in cluster.pools for group in pool.groups}
    if cluster.control_plane is not None:
        found.add(cluster.control_plane.region)
    found |= {site.name for site in cluster.sites if any(WORKERS & {*node.roles} for node in site.nodes)}
    return tuple(sorted(found))
