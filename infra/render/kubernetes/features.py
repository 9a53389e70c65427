"""What Node Feature Discovery makes of machines' reports: taints of nodes whose GPUs are sick, or whose
scratch space is not mounted.

A kubelet may not taint its own node (admission plugin NodeRestriction), and node-problem-detector taints
none. The machine's own check writes a file, the agent on the node reports it, and Node Feature Discovery's
master, which alone may change nodes, sets the taint and takes it away. An agent may report of its own node
and of no other.
"""

from __future__ import annotations

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, static


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``rules.yaml`` and ``policy.yaml``; nothing where the add-on is off."""
    if not cluster.kubernetes.has("node-feature-discovery"):
        return {}
    return {f"{name}.yaml": static(f"after/features/{name}") for name in ("policy", "rules")}
