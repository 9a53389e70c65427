"""Which machines are nodes, and which of them run pods."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from infra.catalogue import roles
from infra.model import Cluster

_WORKERS: Final = frozenset({"worker", roles.GPU_WORKER})
_KUBELET: Final = frozenset({"kubernetes::worker", "kubernetes::control_plane"})
"""Recipes that make a machine a node."""
MIRROR: Final = "http://127.0.0.1:29020"
"""Where containerd asks for image layers of neighbours: the site's own mirror, on the node. The port is below
those that Kubernetes gives to Services, 30000 to 32767, and below those of outgoing connections."""


def is_node(its_roles: Collection[str]) -> bool:
    """Whether a machine with these roles is a node, be it one that runs no pods."""
    return not _KUBELET.isdisjoint(roles.recipes([f"role[{role}]" for role in sorted(its_roles)]))


def runs_pods(its_roles: Collection[str]) -> bool:
    """Whether a machine with these roles is there for work."""
    return not _WORKERS.isdisjoint(its_roles)


def sites_of_nodes(cluster: Cluster) -> tuple[str, ...]:
    """Sites that have nodes for work, or may have: regions of the control plane and of pools, racks."""
    found = {group.region for pool in cluster.pools for group in pool.groups}
    if cluster.control_plane is not None:
        found.add(cluster.control_plane.region)
    found |= {site.name for site in cluster.sites if any(runs_pods(node.roles) for node in site.nodes)}
    return tuple(sorted(found))
