"""What nodes need of the cluster: labels and taints by what they report, conditions, metrics of their GPUs
and for `kubectl top`, images from their neighbours."""

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
"""In each pod: the cluster's authority, which signs kubelets' serving certificates."""
NO_NODE_PORT: Final = f"{OURS}/no-node-port"


def releases(cluster: Cluster) -> list[Release]:
    """Of each add-on that is on; the mirror's, one a site."""
    return [
        *_features(cluster),
        *_metrics(cluster),
        *_gpu_metrics(cluster),
        *_problems(cluster),
        *_mirrors(cluster),
    ]


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


def _gpu_metrics(cluster: Cluster) -> list[Release]:
    """Metrics of GPUs, with the pod that has each; ``watching.py`` says how they are scraped."""
    values = {
        "runtimeClassName": "nvidia",
        "affinity": nodes([{"key": GPU_MODEL, "operator": "Exists"}]),
        # GPU nodes are tainted, those with sick GPUs too: what runs there keeps its GPUs and its metrics.
        "tolerations": EVERYWHERE,
        "rollingUpdate": {"maxUnavailable": "10%"},
        "customMetrics": copied("kubernetes")["gpu/counters.csv"],
        "extraHostVolumes": [{"name": "gpus", "hostPath": "/dev/null"}],
        "extraVolumeMounts": [
            # As the chart has it by default.
            {
                "name": "exporter-metrics-volume",
                "mountPath": "/etc/dcgm-exporter/default-counters.csv",
                "subPath": "default-counters.csv",
            },
            # A mount of anything here asks the NVIDIA runtime for every GPU.
            {"name": "gpus", "mountPath": "/var/run/nvidia-container-devices/all"},
        ],
        # It starts an engine of its own, which looks at every GPU first.
        "livenessProbe": {"initialDelaySeconds": 180, "periodSeconds": 30},
        # Nodes are updated a tenth at a time, within the release's timeout: not 45 seconds each.
        "readinessProbe": {"initialDelaySeconds": 5},
        # The chart limits its CPU, too.
        "resources": merged(requests("50m", "192Mi", limit="768Mi"), {"limits": {"cpu": None}}),
        "service": {"enable": False},
        "serviceMonitor": {"enabled": False},
    }
    return of(cluster, "dcgm-exporter", values)


def _problems(cluster: Cluster) -> list[Release]:
    """What goes wrong on a node, as conditions, events and metrics: of the kernel's messages, and of what the
    machine's own check of its GPUs wrote. It taints nothing: that is the matter of Node Feature Discovery."""
    found = cluster.kubernetes.addon("node-problem-detector")
    images = found.chart.images if found is not None and found.chart is not None else ()
    gpus = has_gpus(cluster.pools, cluster.sites)
    names = ["kernel.json", *(["gpu.json", "gpu-sick"] if gpus else [])]
    values = {
        # The chart lags behind the program's releases.
        "image": {"tag": parse(images[0]).tag} if images else {},
        "settings": {
            "custom_monitor_definitions": {name: copied("kubernetes")[f"problems/{name}"] for name in names},
            "log_monitors": ["/custom-config/kernel.json"],
            "custom_plugin_monitors": ["/custom-config/gpu.json"] if gpus else [],
        },
        # The folder with the report of the GPUs: it reads no log but the kernel's, /dev/kmsg.
        "logDir": {"host": "/var/lib/causeway"},
        "volume": {"localtime": {"enabled": False}},
        "securityContext": {"readOnlyRootFilesystem": True},
        "resources": requests("10m", "48Mi", limit="160Mi"),
        "maxUnavailable": "10%",
    }
    return of(cluster, "node-problem-detector", values)


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
