"""Where worker nodes are, whether they are scaled, and the address of the image mirror."""

from __future__ import annotations

from typing import Final

from infra.model import Cluster

MIRROR: Final = "http://127.0.0.1:29020"
"""The site's image mirror on the node, which containerd uses. The port is below the node ports of Services,
30000 to 32767, and below the ephemeral ports."""


def sites_of_nodes(cluster: Cluster) -> tuple[str, ...]:
    """Sites that have or may have worker nodes: regions of the control plane and of pools, and physical
    sites."""
    found = {group.site for pool in cluster.pools for group in pool.groups}
    if cluster.control_plane is not None:
        found.add(cluster.control_plane.site)
    found |= {site.name for site in cluster.sites if any(node.runs_pods for node in site.nodes)}
    return tuple(sorted(found))


def is_scaled(cluster: Cluster) -> bool:
    """Whether the autoscaler is enabled, has an image and pools to manage, and is applied."""
    from infra.render.kubernetes import APPLIED

    settings = cluster.autoscaler
    return settings.enabled and settings.image is not None and has_pools(cluster) and "autoscaler" in APPLIED


def has_pools(cluster: Cluster) -> bool:
    """Whether there are machines that are launched and terminated automatically."""
    return any(pool.groups for pool in cluster.pools)
