"""Where nodes for work are, whether they come and go, and where they get image layers from each other."""

from __future__ import annotations

from typing import Final

from infra.model import Cluster

MIRROR: Final = "http://127.0.0.1:29020"
"""Where containerd asks for image layers of neighbours: the site's own mirror, on the node. The port is below
those that Kubernetes gives to Services, 30000 to 32767, and below those of outgoing connections."""


def sites_of_nodes(cluster: Cluster) -> tuple[str, ...]:
    """Sites that have nodes for work, or may have: regions of the control plane and of pools, racks."""
    found = {group.site for pool in cluster.pools for group in pool.groups}
    if cluster.control_plane is not None:
        found.add(cluster.control_plane.site)
    found |= {site.name for site in cluster.sites if any(node.runs_pods for node in site.nodes)}
    return tuple(sorted(found))


def is_scaled(cluster: Cluster) -> bool:
    """Whether the autoscaler is on, has an image to run from and pools to care for, and is applied."""
    from infra.render.kubernetes import APPLIED

    settings = cluster.autoscaler
    return settings.enabled and settings.image is not None and has_pools(cluster) and "autoscaler" in APPLIED


def has_pools(cluster: Cluster) -> bool:
    """Whether there are machines that come and go."""
    return any(pool.groups for pool in cluster.pools)
