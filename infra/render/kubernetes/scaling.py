"""Whether the cluster has its autoscaler: others speak of it only then."""

from __future__ import annotations

from infra.model import Cluster


def is_scaled(cluster: Cluster) -> bool:
    """Whether it is on, has an image to run from and pools to care for, and is a part of what is applied."""
    from infra.render.kubernetes import APPLIED

    settings = cluster.autoscaler
    return settings.enabled and settings.image is not None and has_pools(cluster) and "autoscaler" in APPLIED


def has_pools(cluster: Cluster) -> bool:
    """Whether there are machines that come and go."""
    return any(pool.groups for pool in cluster.pools)
