"""The kubelet's configuration (kubelet.config.k8s.io/v1beta1), and flags that have no field in it.

What all nodes have in common goes into the cluster by kubeadm, and by Chef's environment onto each machine,
where Chef adds what is the machine's own: its size, its taints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.model import Cluster
from infra.model.kubernetes import Reserved, Share, Taint

_API: Final = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

SHUTDOWN: Final = {"grace": 90, "critical": 20}
"""Seconds that pods have when a machine shuts down, and the last of them, which are for storage and network.
A spot instance is told two minutes ahead."""
IMAGES: Final = {"high": 80, "low": 65, "maximum_age": "336h"}
"""Images go when the disk is so full (percent), down to so full, and when nobody used them for so long."""


def common() -> dict[str, Any]:
    """Fields that are the same on every node, those that name the document left out."""
    return {
        "cgroupDriver": "systemd",
        "rotateCertificates": True,
        # The cluster signs serving certificates, and masters approve them (``causeway-join-approve``). The
        # kubelet renews them itself. Until it has one, it serves neither logs nor metrics.
        "serverTLSBootstrap": True,
        "seccompDefault": True,
        # The kubelet sets the kernel's settings that it needs, rather than refuse to start without them.
        "protectKernelDefaults": False,
        "podPidsLimit": 16384,
        "serializeImagePulls": False,
        "maxParallelImagePulls": 3,
        "containerLogMaxSize": "50Mi",
        "containerLogMaxFiles": 3,
        # Out of memory ends one process, not its container: whoever started it says so, and how it ended.
        "singleProcessOOMKill": True,
    }


def cluster_wide(cluster: Cluster) -> dict[str, Any]:
    """The document that `kubeadm init` keeps in the cluster, and writes onto every node that joins."""
    return {**_API, **common(), "maxPods": cluster.kubernetes.pods_per_node}


def own(
    reserved: Reserved, taints: Sequence[Taint], *, pods: int, eviction: Mapping[str, str]
) -> dict[str, Any]:
    """The whole document of a machine: what is common, what it keeps from pods, and its taints."""
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
    """As the API has them: an empty value is left out."""
    return [
        {"key": each.key, **({"value": each.value} if each.value else {}), "effect": each.effect}
        for each in taints
    ]
