"""node-problem-detector: what goes wrong on a node, as conditions, events and metrics.

It reads the kernel's messages, and what the machine's own check of its GPUs wrote. It taints nothing: that
is ``features``' matter.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.machines import has_gpus
from infra.render.kubernetes.manifests import SYSTEM, Documents, filled, of, static
from infra.render.templating import copied

NAME: Final = "node-problem-detector"


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Its account, its rules, and one on each node."""
    addon = cluster.kubernetes.addon(NAME)
    if addon is None or addon.image is None:
        return {}
    gpus = has_gpus(cluster.pools, cluster.sites)
    names = ["kernel.json", *(["gpu.json", "gpu-sick"] if gpus else [])]
    files = {name: copied("kubernetes")[f"problems/{name}"] for name in names}
    return {
        "rights.yaml": static("problems/rights"),
        "rules.yaml": [of("v1", "ConfigMap", NAME, namespace=SYSTEM, data=files)],
        "daemons.yaml": filled("problems/daemons", image=addon.image, gpus=gpus),
    }
