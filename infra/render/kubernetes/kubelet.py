"""The kubelet's configuration (kubelet.config.k8s.io/v1beta1), and flags that have no field in it.

Common values are set in the cluster by kubeadm, and on each machine by Chef's environment; Chef adds
machine-specific values: reserved resources and taints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.model import Cluster
from infra.model.kubernetes import Reserved, Share, Taint

_API: Final = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

SHUTDOWN: Final = {"grace": 90, "critical": 20}
"""Seconds that pods have when a machine shuts down, and the last seconds of these, for critical pods such as
storage and network. A Spot Instance gets two minutes' notice."""
IMAGES: Final = {"high": 80, "low": 65, "maximum_age": "336h"}
"""Image garbage collection: starts at ``high`` percent of disk usage, frees down to ``low``, and deletes
images unused for ``maximum_age``."""


def common() -> dict[str, Any]:
    """Fields that are the same on every node, without apiVersion and kind."""
    return {
        "cgroupDriver": "systemd",
        "rotateCertificates": True,
        # The cluster signs serving certificates, and masters approve them (``causeway-join-approve``). The
        # kubelet renews them itself. Until it has one, it serves neither logs nor metrics.
        "serverTLSBootstrap": True,
        "seccompDefault": True,
        # The kubelet sets the kernel parameters that it needs instead of refusing to start.
        "protectKernelDefaults": False,
        "podPidsLimit": 16384,
        "serializeImagePulls": False,
        "maxParallelImagePulls": 3,
        "containerLogMaxSize": "50Mi",
        "containerLogMaxFiles": 3,
        # Out of memory kills one process instead of its whole container, so that its parent can report it.
        "singleProcessOOMKill": True,
    }


def cluster_wide(cluster: Cluster) -> dict[str, Any]:
    """The document that `kubeadm init` stores in the cluster and writes to every node that joins."""
    return {**_API, **common(), "maxPods": cluster.kubernetes.pods_per_node}


def own(
    reserved: Reserved, taints: Sequence[Taint], *, pods: int, eviction: Mapping[str, str]
) -> dict[str, Any]:
    """The whole document of a machine: the common part, its reserved resources, and its taints."""
    return {
        **_API,
        **common(),
        "maxPods": pods,
        "kubeReserved": quantities(reserved.kube),
        "systemReserved": quantities(reserved.system),
        "evictionHard": dict(eviction),
        "imageGCHighThresholdPercent": IMAGES["high"],
        "imageGCLowThresholdPercent": IMAGES["low"],
        "imageMaximumGCAge": IMAGES["maximum_age"],
        "shutdownGracePeriod": f"{SHUTDOWN['grace']}s",
        "shutdownGracePeriodCriticalPods": f"{SHUTDOWN['critical']}s",
        **({"registerWithTaints": taints_of(taints)} if taints else {}),
    }


def quantities(share: Share) -> dict[str, str]:
    """``{"cpu": "140m", "memory": "1465Mi"}``."""
    return {"cpu": f"{share.millicores}m", "memory": f"{share.mib}Mi"}


def taints_of(taints: Sequence[Taint]) -> list[dict[str, str]]:
    """In the API's format, where an empty value is omitted."""
    return [
        {"key": each.key, **({"value": each.value} if each.value else {}), "effect": each.effect}
        for each in taints
    ]
