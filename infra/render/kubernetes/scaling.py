"""Whether the cluster has its autoscaler: others speak of it only then."""

from __future__ import annotations

from infra.model import Cluster


def is_scaled(cluster: Cluster) -> bool:
    """Whether it is on, and a part of what is applied."""
    from infra.render.kubernetes import APPLIED

    return cluster.autoscaler.enabled and "autoscaler" in APPLIED
