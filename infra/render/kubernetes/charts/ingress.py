"""Traefik: internal pages at one address of the service range, which is reachable only inside the VPN."""

from __future__ import annotations

from typing import Final

from infra.model import Cluster
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, of
from infra.render.kubernetes.pods import requests

CLASS: Final = "traefik"
"""The default IngressClass."""


def releases(cluster: Cluster) -> list[Release]:
    """The release, or nothing if it is disabled."""
    plane, ingress = cluster.control_plane, cluster.kubernetes.ingress
    if plane is None or ingress is None:
        return []
    monitored = cluster.kubernetes.has("prometheus")
    masters = len(plane.masters)
    values = {
        "deployment": {"replicas": masters},
        **({"podDisruptionBudget": {"enabled": True, "maxUnavailable": 1}} if masters > 1 else {}),
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1 if masters > 1 else 0, "maxSurge": 1}},
        # Laptops and machines can reach service addresses, so no load balancer and no node port is needed.
        "service": {"spec": {"type": "ClusterIP", "clusterIP": str(ingress.address)}},
        "ports": {
            "web": {
                "http": {
                    "redirections": {"entryPoint": {"to": "websecure", "scheme": "https", "permanent": True}}
                }
            }
        },
        "ingressClass": {"enabled": True, "isDefaultClass": True, "name": CLASS},
        "api": {"dashboard": False},
        "gateway": {"enabled": False},
        "gatewayClass": {"enabled": False},
        "providers": {
            # Users create Ingress objects; Traefik's own kinds are limited to services of the same namespace.
            "kubernetesCRD": {"enabled": True, "allowCrossNamespace": False},
            "kubernetesIngress": {
                "publishedService": {"enabled": False},
                "ingressEndpoint": {"ip": str(ingress.address)},
            },
        },
        "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
        "accessLog": {"enabled": True, "format": "json"},
        "metrics": {
            "prometheus": {"service": {"enabled": monitored}, "serviceMonitor": {"enabled": monitored}}
        },
        "resources": requests("50m", "64Mi", limit="512Mi"),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": CLASS}},
            }
        ],
        **ON_MASTERS,
    }
    return of(cluster, "ingress", values)
