"""What a worker may do while it is upgraded: ``static/upgrades/rights.yaml``."""

from __future__ import annotations

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, static


def objects(_cluster: Cluster, _outputs: Outputs = NO_OUTPUTS) -> Documents:
    """``rights.yaml``."""
    return {"rights.yaml": static("upgrades/rights")}
