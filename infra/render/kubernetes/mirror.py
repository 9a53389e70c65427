"""Image layers of neighbours are for the node's own containerd: the mirror has no port on every machine.

Spegel's chart makes a Service of type NodePort, whatever its values say, and Kubernetes gives it a port
between 30000 and 32767 on all machines. Nobody uses it: containerd asks the pod of its node, at the node's
loopback address (``nodes.py``). So the API server makes a plain Service of it.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, filled, mutating_api

ADDON: Final = "registry-mirror"


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The policy, before the chart comes; nothing where the mirror is off."""
    addon = cluster.kubernetes.addon(ADDON)
    if addon is None or addon.chart is None:
        return {}
    api = mutating_api(cluster.kubernetes.version)
    return {"services.yaml": filled("mirror/services", api=api, namespace=addon.chart.namespace)}
