"""cert-manager: certificates of internal pages, issued by the cluster's own CA."""

from __future__ import annotations

from infra.model import Cluster
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, of
from infra.render.kubernetes.manifests import SYSTEM
from infra.render.kubernetes.pods import requests


def releases(cluster: Cluster) -> list[Release]:
    """The release, or nothing if it is disabled."""
    small = requests("10m", "32Mi", limit="256Mi")
    values = {
        # CRDs are kept when the release is uninstalled: deleting one would delete all certificates.
        "crds": {"enabled": True, "keep": True},
        # The namespace of the CA's key, which only readers of this namespace can read.
        "clusterResourceNamespace": SYSTEM,
        "resources": requests("10m", "64Mi", limit="512Mi"),
        **ON_MASTERS,
        "webhook": {**ON_MASTERS, "resources": small},
        "cainjector": {**ON_MASTERS, "resources": requests("10m", "64Mi", limit="512Mi")},
        "startupapicheck": {**ON_MASTERS, "resources": small},
        "prometheus": {
            "servicemonitor": {
                "enabled": cluster.kubernetes.has("prometheus"),
                # In metrics, the namespace is that of the certificate, not cert-manager's.
                "honorLabels": True,
            }
        },
    }
    return of(cluster, "cert-manager", values)
