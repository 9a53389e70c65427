"""GPU device plugins and labels. Charts collect metrics of GPUs (``charts/nodes.py``).

The device plugin reads the sharing configuration from a file. A node's label selects the file
(``nvidia.com/device-plugin.config``), so each configuration has its own DaemonSet on the nodes with that
label: neither the plugin nor GPU feature discovery needs access to the API server.

GPUs are exposed to these agents by a mount that requires a privileged namespace, and not by an environment
variable that any image can set (NVIDIA k8s-device-plugin, README, ``device-list-strategy``).

GPU feature discovery writes a file on the node, as does the machine's own check of its GPUs; Node Feature
Discovery turns both into labels and taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.catalogue.labels import GPU_MODEL, PLUGIN, WHOLE
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.places import Gpus
from infra.render.kubernetes.manifests import SYSTEM, Documents, Manifest, Object, filled, joined, of, static

FEATURES: Final = "/etc/kubernetes/node-feature-discovery/features.d"
"""The folder in which Node Feature Discovery reads features from files ("Local feature source")."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The objects of each GPU add-on."""
    on = cluster.kubernetes.has
    plugin, features, dcgm = on("nvidia-device-plugin"), on("gpu-feature-discovery"), on("dcgm-exporter")
    shared = configurations(cluster)
    documents: dict[str, Sequence[Object]] = {}
    if plugin or features or dcgm:
        documents["runtime.yaml"] = static("gpu/runtime")
    if plugin or features:
        files = {f"{name}.yaml": _sharing(gpus) for name, gpus in shared.items()}
        documents["sharing.yaml"] = [of("v1", "ConfigMap", "nvidia-sharing", namespace=SYSTEM, data=files)]
    if plugin:
        documents["device-plugin.yaml"] = _agents(cluster, "nvidia-device-plugin", shared)
    if features:
        documents["feature-discovery.yaml"] = _agents(cluster, "gpu-feature-discovery", shared)
    return documents


def configurations(cluster: Cluster) -> dict[str, Gpus]:
    """Sharing configurations: the label's value → GPUs with that configuration. Always includes ``whole``."""
    found: dict[str, Gpus] = {}
    for labels, gpus in _gpus(cluster):
        found.setdefault(labels.get(PLUGIN, WHOLE), gpus)
    return dict(sorted(found.items(), key=lambda item: (item[0] != WHOLE, item[0])))


def _gpus(cluster: Cluster) -> Iterable[tuple[Any, Gpus]]:
    for pool in cluster.pools:
        if pool.gpus is not None:
            yield from ((group.labels, pool.gpus) for group in pool.groups[:1])
    for site in cluster.sites:
        yield from ((node.labels, node.gpus) for node in site.nodes if node.gpus is not None)


def _sharing(gpus: Gpus) -> str:
    return filled(
        "gpu/sharing",
        mig_strategy="single" if gpus.mig else "none",
        slices=gpus.time_slices if gpus.time_slices > 1 else None,
        output=f"{FEATURES}/gfd",
    ).text


def _agents(cluster: Cluster, addon: str, shared: Mapping[str, Gpus]) -> Manifest:
    """A DaemonSet per configuration, on the nodes with its label."""
    return joined(
        filled(
            f"gpu/{addon}",
            name=addon if configuration == WHOLE else f"{addon}-{configuration}",
            image=_image(cluster, addon),
            configuration=f"/etc/sharing/{configuration}.yaml",
            nodes=_nodes(configuration, shared),
            mig=bool(gpus.mig),
            features=FEATURES,
        )
        for configuration, gpus in shared.items()
    )


def _nodes(configuration: str, shared: Iterable[str]) -> list[Object]:
    """The node selector terms of a configuration; ``whole`` also matches nodes without the label."""
    others = [each for each in shared if each != WHOLE]
    own = {"key": PLUGIN, "operator": "In", "values": [configuration]}
    if configuration == WHOLE:
        own = {"key": PLUGIN, "operator": "NotIn", "values": others}
    return [{"key": GPU_MODEL, "operator": "Exists"}, *([own] if own["values"] else [])]


def _image(cluster: Cluster, addon: str) -> str:
    found = cluster.kubernetes.addon(addon)
    assert found is not None, "only what is on is asked for"
    assert found.image is not None, "manifests of ours have an image"
    return found.image
