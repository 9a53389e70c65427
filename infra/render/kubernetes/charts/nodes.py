"""Charts of agents on nodes: labels and taints from node features, conditions, metrics of GPUs and for
`kubectl top`, and a peer-to-peer image mirror."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from infra.catalogue.labels import GPU_MODEL, OURS, SITE
from infra.model import Cluster
from infra.model.containers import parse
from infra.model.machines import has_gpus
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, merged, of
from infra.render.kubernetes.nodes import MIRROR, sites_of_nodes
from infra.render.kubernetes.pods import EVERYWHERE, nodes, requests
from infra.render.templating import copied

AUTHORITY: Final = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
"""The path, in each pod, of the cluster's CA, which signs kubelets' serving certificates."""
NO_NODE_PORT: Final = f"{OURS}/no-node-port"


def releases(cluster: Cluster) -> list[Release]:
    """The releases of all enabled add-ons; of the mirror, one per site."""
    return [
        *_features(cluster),
        *_metrics(cluster),
        *_gpu_metrics(cluster),
        *_problems(cluster),
        *_mirrors(cluster),
    ]


def _features(cluster: Cluster) -> list[Release]:
    """Node Feature Discovery, limited to features that the machine and other agents report: other labels are
    set from the spec."""
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
            # Only reports for the agent's own node are accepted, and only labels of our domain.
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


def _gpu_metrics(cluster: Cluster) -> list[Release]:
    """GPU metrics, with the pod that holds each GPU; ``watching.py`` configures their scraping."""
    values = {
        "runtimeClassName": "nvidia",
        "affinity": nodes([{"key": GPU_MODEL, "operator": "Exists"}]),
        # GPU nodes are tainted, also those with sick GPUs: pods that run there keep their GPUs and metrics.
        "tolerations": EVERYWHERE,
        "rollingUpdate": {"maxUnavailable": "10%"},
        "customMetrics": copied("kubernetes")["gpu/counters.csv"],
        "extraHostVolumes": [{"name": "gpus", "hostPath": "/dev/null"}],
        "extraVolumeMounts": [
            # The chart's default.
            {
                "name": "exporter-metrics-volume",
                "mountPath": "/etc/dcgm-exporter/default-counters.csv",
                "subPath": "default-counters.csv",
            },
            # A mount of any path here makes the NVIDIA runtime expose all GPUs.
            {"name": "gpus", "mountPath": "/var/run/nvidia-container-devices/all"},
        ],
        # It starts its own DCGM engine, which first initialises every GPU.
        "livenessProbe": {"initialDelaySeconds": 180, "periodSeconds": 30},
        # Nodes are updated a tenth at a time, within the release's timeout: the default of 45 seconds per
        # node is too long.
        "readinessProbe": {"initialDelaySeconds": 5},
        # The chart would also limit its CPU.
        "resources": merged(requests("50m", "192Mi", limit="768Mi"), {"limits": {"cpu": None}}),
        "service": {"enable": False},
        "serviceMonitor": {"enabled": False},
    }
    return of(cluster, "dcgm-exporter", values)


def _problems(cluster: Cluster) -> list[Release]:
    """node-problem-detector: problems of a node as conditions, events and metrics, from kernel messages and
    from the machine's check of its GPUs. It sets no taints, which is done by Node Feature Discovery."""
    found = cluster.kubernetes.addon("node-problem-detector")
    images = found.chart.images if found is not None and found.chart is not None else ()
    gpus = has_gpus(cluster.pools, cluster.sites)
    names = ["kernel.json", *(["gpu.json", "gpu-sick"] if gpus else [])]
    values = {
        # The chart is behind the program's releases.
        "image": {"tag": parse(images[0]).tag} if images else {},
        "settings": {
            "custom_monitor_definitions": {name: copied("kubernetes")[f"problems/{name}"] for name in names},
            "log_monitors": ["/custom-config/kernel.json"],
            "custom_plugin_monitors": ["/custom-config/gpu.json"] if gpus else [],
        },
        # The folder with the report of the GPUs. Its only log is the kernel's, /dev/kmsg.
        "logDir": {"host": "/var/lib/causeway"},
        "volume": {"localtime": {"enabled": False}},
        "securityContext": {"readOnlyRootFilesystem": True},
        "resources": requests("10m", "48Mi", limit="160Mi"),
        "maxUnavailable": "10%",
    }
    return of(cluster, "node-problem-detector", values)


def _mirrors(cluster: Cluster) -> list[Release]:
    """Image mirrors, one release per site: layers are not fetched from another site through a tunnel."""
    values = {
        # Tags are resolved by the registry only: a peer may have an older image of that tag. Chef writes
        # hosts.toml.
        "spegel": {"resolveTags": False, "containerdMirrorAdd": False, "debugWebEnabled": False},
        "service": {
            "registry": {
                "hostPort": urlsplit(MIRROR).port,
                # The policy in ``mirror`` removes the Service's node port on its next change.
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
