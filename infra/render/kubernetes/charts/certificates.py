"""cert-manager: certificates of internal pages, from the cluster's own authority."""

from __future__ import annotations

from infra.model import Cluster
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, of
from infra.render.kubernetes.manifests import SYSTEM
from infra.render.kubernetes.pods import requests


def releases(cluster: Cluster) -> list[Release]:
    """One, or none where it is off."""
    small = requests("10m", "32Mi", limit="256Mi")
    values = {
        # Kept when the release goes: with a kind all certificates of that kind would go.
        "crds": {"enabled": True, "keep": True},
        # Where the authority's key is, which only this namespace's readers see.
        "clusterResourceNamespace": SYSTEM,
        "resources": requests("10m", "64Mi", limit="512Mi"),
        **ON_MASTERS,
        "webhook": {**ON_MASTERS, "resources": small},
        "cainjector": {**ON_MASTERS, "resources": requests("10m", "64Mi", limit="512Mi")},
        "startupapicheck": {**ON_MASTERS, "resources": small},
        "prometheus": {
            "servicemonitor": {
                "enabled": cluster.kubernetes.has("prometheus"),
                # The namespace in figures is that of a certificate, never cert-manager's.
                "honorLabels": True,
            }
        },
    }
    return of(cluster, "cert-manager", values)
