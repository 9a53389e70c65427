"""Cards: offered to pods, described by labels, measured; nodes whose cards are sick are tainted.

The device plugin reads how cards are shared from a file. A node says by a label which of the files is its
own (``nvidia.com/device-plugin.config``), so each has a DaemonSet of its own on the nodes with that label:
neither the plugin nor what describes the cards needs the API server, or an account there.

Cards reach the agents here by a mount that only a privileged namespace can have, and not by an environment
variable that every image can set (NVIDIA k8s-device-plugin, README, ``device-list-strategy``).

GPU feature discovery writes a file on the node, as does the machine's own check of its cards; Node Feature
Discovery makes labels and taints of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from infra.catalogue.labels import GPU_MODEL, PLUGIN, WHOLE
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.places import Gpus
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, of, to_yaml
from infra.render.kubernetes.pods import EVERYWHERE, daemons, field, host, nodes, requests, value
from infra.render.templating import copied

RUNTIME: Final = "nvidia"
"""The RuntimeClass, and containerd's handler."""
FEATURES: Final = "/etc/kubernetes/node-feature-discovery/features.d"
"""Where Node Feature Discovery reads what others found (its documentation, "Local feature source")."""
METRICS: Final = "metrics"
DCGM_PORT: Final = 9400

_ALL_CARDS: Final = "/var/run/nvidia-container-devices/all"
"""A mount of anything here asks the NVIDIA runtime for every card."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """What each add-on for cards is made of."""
    on = cluster.kubernetes.has
    plugin, features, dcgm = on("nvidia-device-plugin"), on("gpu-feature-discovery"), on("dcgm-exporter")
    shared = configurations(cluster)
    documents: dict[str, list[Object]] = {}
    if plugin or features or dcgm:
        documents["runtime.yaml"] = [_runtime()]
    if plugin or features:
        documents["sharing.yaml"] = [
            _map(
                "nvidia-sharing",
                {f"{name}.yaml": to_yaml([_shared(cards)]) for name, cards in shared.items()},
            )
        ]
    if plugin:
        documents["device-plugin.yaml"] = [
            _plugin(cluster, name, cards, shared) for name, cards in shared.items()
        ]
    if features:
        documents["feature-discovery.yaml"] = [
            _features(cluster, name, cards, shared) for name, cards in shared.items()
        ]
    if dcgm:
        documents["dcgm-exporter.yaml"] = _dcgm(cluster)
    return documents


def configurations(cluster: Cluster) -> dict[str, Gpus]:
    """How cards are shared: the label's value → some cards that are shared so. ``whole`` is always there."""
    found: dict[str, Gpus] = {}
    for labels, cards in _cards(cluster):
        found.setdefault(labels.get(PLUGIN, WHOLE), cards)
    return dict(sorted(found.items(), key=lambda item: (item[0] != WHOLE, item[0])))


def _cards(cluster: Cluster) -> Iterable[tuple[Any, Gpus]]:
    for pool in cluster.pools:
        if pool.gpus is not None:
            yield from ((group.labels, pool.gpus) for group in pool.groups[:1])
    for site in cluster.sites:
        yield from ((node.labels, node.gpus) for node in site.nodes if node.gpus is not None)


def _runtime() -> Object:
    return of("node.k8s.io/v1", "RuntimeClass", RUNTIME, handler=RUNTIME)


def _shared(cards: Gpus) -> Object:
    """The plugin's configuration file (k8s-device-plugin, README, "As a configuration file")."""
    flags = {
        # All cards of a node are split alike, and count as cards.
        "migStrategy": "single" if cards.mig else "none",
        # A node whose driver is broken shall be seen as one, by a container that does not start.
        "failOnInitError": True,
        "plugin": {"deviceListStrategy": ["volume-mounts"], "deviceIDStrategy": "uuid"},
        "gfd": {"noTimestamp": True, "sleepInterval": "60s", "outputFile": f"{FEATURES}/gfd"},
    }
    slices = {
        "renameByDefault": False,
        # Two slices may be of one card: who asks for two would believe in two cards.
        "failRequestsGreaterThanOne": True,
        "resources": [{"name": "nvidia.com/gpu", "replicas": cards.time_slices}],
    }
    return {
        "version": "v1",
        "flags": flags,
        **({"sharing": {"timeSlicing": slices}} if cards.time_slices > 1 else {}),
    }


def _plugin(cluster: Cluster, name: str, cards: Gpus, shared: dict[str, Gpus]) -> Object:
    container = {
        "name": "nvidia-device-plugin",
        "image": _image(cluster, "nvidia-device-plugin"),
        "command": ["nvidia-device-plugin"],
        "env": [value("CONFIG_FILE", f"/etc/sharing/{name}.yaml"), *_driver(cards)],
        "resources": requests("10m", "64Mi"),
        "securityContext": _security(cards),
        "volumeMounts": [
            {"name": "sharing", "mountPath": "/etc/sharing", "readOnly": True},
            {"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
            _CARDS_MOUNT,
        ],
    }
    volumes = [
        _configuration_volume(),
        host("plugins", "/var/lib/kubelet/device-plugins", "Directory"),
        _CARDS,
    ]
    return _daemons("nvidia-device-plugin", name, shared, container, volumes)


def _features(cluster: Cluster, name: str, cards: Gpus, shared: dict[str, Gpus]) -> Object:
    container = {
        "name": "gpu-feature-discovery",
        "image": _image(cluster, "gpu-feature-discovery"),
        "command": ["gpu-feature-discovery"],
        "env": [
            value("CONFIG_FILE", f"/etc/sharing/{name}.yaml"),
            field("NODE_NAME", "spec.nodeName"),
            *_driver(cards),
        ],
        "resources": requests("10m", "64Mi"),
        "securityContext": _security(cards),
        "volumeMounts": [
            {"name": "sharing", "mountPath": "/etc/sharing", "readOnly": True},
            {"name": "features", "mountPath": FEATURES},
            # The machine's make, which is a label.
            {"name": "sys", "mountPath": "/sys", "readOnly": True},
            _CARDS_MOUNT,
        ],
    }
    volumes = [
        _configuration_volume(),
        host("features", FEATURES, "DirectoryOrCreate"),
        host("sys", "/sys", "Directory"),
        _CARDS,
    ]
    return _daemons("gpu-feature-discovery", name, shared, container, volumes)


def _dcgm(cluster: Cluster) -> list[Object]:
    """The exporter, with the pod that has a card. Machines outside of Kubernetes run one of their own."""
    container = {
        "name": "dcgm-exporter",
        "image": _image(cluster, "dcgm-exporter"),
        "args": ["--collectors", "/etc/counters/counters.csv"],
        "env": [
            value("DCGM_EXPORTER_LISTEN", f":{DCGM_PORT}"),
            value("DCGM_EXPORTER_KUBERNETES", "true"),
            field("NODE_NAME", "spec.nodeName"),
        ],
        "ports": [{"name": METRICS, "containerPort": DCGM_PORT, "protocol": "TCP"}],
        # It starts an engine of its own, which looks at every card first.
        "startupProbe": {
            "httpGet": {"path": "/health", "port": METRICS},
            "periodSeconds": 5,
            "failureThreshold": 36,
        },
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": METRICS},
            "periodSeconds": 30,
            "timeoutSeconds": 10,
        },
        "resources": requests("50m", "192Mi", limit="768Mi"),
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            # Counters of the profiler are root's (NVIDIA, "Permission issue with performance counters").
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        },
        "volumeMounts": [
            {"name": "counters", "mountPath": "/etc/counters", "readOnly": True},
            {"name": "pods", "mountPath": "/var/lib/kubelet/pod-resources", "readOnly": True},
            _CARDS_MOUNT,
        ],
    }
    volumes = [
        {"name": "counters", "configMap": {"name": "dcgm-counters"}},
        host("pods", "/var/lib/kubelet/pod-resources", "Directory"),
        _CARDS,
    ]
    return [
        _map("dcgm-counters", {"counters.csv": copied("kubernetes")["gpu/counters.csv"]}),
        _daemons("dcgm-exporter", WHOLE, {}, container, volumes),
    ]


def _daemons(
    name: str, configuration: str, shared: dict[str, Gpus], container: Object, volumes: list[Object]
) -> Object:
    """A DaemonSet on the nodes of one configuration; on all that have cards where ``shared`` is empty."""
    full = name if configuration == WHOLE else f"{name}-{configuration}"
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": full}
    here: Object = {"key": PLUGIN, "operator": "In", "values": [configuration]}
    if configuration == WHOLE:
        here = {
            "key": PLUGIN,
            "operator": "NotIn",
            "values": [each for each in shared if each != WHOLE],
        }
    where = [{"key": GPU_MODEL, "operator": "Exists"}, *([here] if here["values"] else [])]
    spec = {
        "affinity": nodes(where),
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "runtimeClassName": RUNTIME,
        # GPU nodes are tainted, sick ones too: what runs there keeps its cards and its figures.
        "tolerations": EVERYWHERE,
        "containers": [container],
        "volumes": volumes,
    }
    return daemons(full, SYSTEM, labels, spec)


def _driver(cards: Gpus) -> list[Object]:
    """What the NVIDIA runtime brings into the container beside the cards."""
    return [
        value("NVIDIA_DRIVER_CAPABILITIES", "utility"),
        *([value("NVIDIA_MIG_MONITOR_DEVICES", "all")] if cards.mig else []),
    ]


def _security(cards: Gpus) -> Object:
    """Root, as the kubelet's sockets and the folder of features are root's. Instances are counted by who has
    SYS_ADMIN alone (MIG User Guide, "Device Nodes and Capabilities")."""
    capabilities: Object = {"drop": ["ALL"], **({"add": ["SYS_ADMIN"]} if cards.mig else {})}
    return {"runAsUser": 0, "allowPrivilegeEscalation": False, "capabilities": capabilities}


_CARDS: Final[Object] = host("cards", "/dev/null", "CharDevice")
_CARDS_MOUNT: Final[Object] = {"name": "cards", "mountPath": _ALL_CARDS}


def _configuration_volume() -> Object:
    return {"name": "sharing", "configMap": {"name": "nvidia-sharing"}}


def _image(cluster: Cluster, addon: str) -> str:
    found = cluster.kubernetes.addon(addon)
    assert found is not None, "only what is on is asked for"
    assert found.image is not None, "manifests of ours have an image"
    return found.image


def _map(name: str, data: dict[str, str]) -> Object:
    return of("v1", "ConfigMap", name, namespace=SYSTEM, data=data)
