"""What nodes need of the cluster: labels and taints by what they report, figures for `kubectl top`, images
from their neighbours."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from infra.catalogue.labels import GPU_MODEL, OURS, SITE
from infra.model import Cluster
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, of
from infra.render.kubernetes.nodes import MIRROR, sites_of_nodes
from infra.render.kubernetes.pods import EVERYWHERE, nodes, requests

AUTHORITY: Final = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
"""In each pod: the cluster's authority, which signs kubelets' serving certificates."""
NO_NODE_PORT: Final = f"{OURS}/no-node-port"


def releases(cluster: Cluster) -> list[Release]:
    """Of each add-on that is on; the mirror's, one a site."""
    return [*_features(cluster), *_metrics(cluster), *_mirrors(cluster)]


def _features(cluster: Cluster) -> list[Release]:
    """Of all that Node Feature Discovery can find out, only what machines and other agents report: what else
    there is to say of a node, the spec says."""
    agent = {
        "tolerations": EVERYWHERE,
        "affinity": nodes([{"key": GPU_MODEL, "operator": "Exists"}]),
        "priorityClassName": "system-node-critical",
        "resources": requests("5m", "32Mi", limit="128Mi"),
        "config": {
            "core": {"sleepInterval": "30s", "featureSources": ["local"], "labelSources": ["local"]},
        },
    }
    own = {"kubernetes.io/metadata.name": "node-feature-discovery"}
    values = {
        "master": {
            **ON_MASTERS,
            "enableTaints": True,
            # Nobody else's reports count, and none of another domain's labels.
            "config": {"restrictions": {"nodeFeatureNamespaceSelector": {"matchLabels": own}}},
            "resources": requests("10m", "64Mi", limit="1Gi"),
        },
        "worker": agent,
        "gc": {**ON_MASTERS, "resources": requests("5m", "32Mi", limit="256Mi")},
        "prometheus": {"enable": cluster.kubernetes.has("prometheus")},
    }
    return of(cluster, "node-feature-discovery", values)


def _metrics(cluster: Cluster) -> list[Release]:
    values = {
        **ON_MASTERS,
        "args": [f"--kubelet-certificate-authority={AUTHORITY}"],
        "resources": requests("50m", "96Mi", limit="1Gi"),
        "metrics": {"enabled": True},
        "serviceMonitor": {"enabled": cluster.kubernetes.has("prometheus")},
    }
    return of(cluster, "metrics-server", values)


def _mirrors(cluster: Cluster) -> list[Release]:
    """Neighbours are those of one site: a layer never crosses a tunnel because of the mirror."""
    values = {
        # Tags are resolved by the registry itself: a neighbour may know an older image of that name.
        # hosts.toml is Chef's.
        "spegel": {"resolveTags": False, "containerdMirrorAdd": False, "debugWebEnabled": False},
        "service": {
            "registry": {
                "hostPort": urlsplit(MIRROR).port,
                # `mirror.py` takes the Service's away, as soon as something of it changes.
                "nodePort": None,
                "annotations": {NO_NODE_PORT: "true"},
                "topologyAwareHintsEnabled": False,
            }
        },
        "tolerations": EVERYWHERE,
        "resources": requests("10m", "96Mi", limit="256Mi"),
        "serviceMonitor": {"enabled": cluster.kubernetes.has("prometheus")},
    }
    return [
        release
        for site in sites_of_nodes(cluster)
        for release in of(
            cluster,
            "registry-mirror",
            {**values, "nodeSelector": {"kubernetes.io/os": "linux", SITE: site}},
            name=f"spegel-{site}",
        )
    ]
