"""What masters need to approve certificates of kubelets (cookbooks/kubernetes, ``upkeep``).

Rights of the tokens that machines of pools join with; and addresses of machines with a name of their own: the
only ones that their serving certificates may have.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import SYSTEM, Documents, of, static

TOKENS: Final = "system:bootstrappers:causeway:pools"
"""The group of the tokens (``kubernetes_node.token``)."""
ADDRESSES: Final = "node-addresses"
"""The ConfigMap that masters read (``kubernetes_node.approval``)."""


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """``addresses.yaml``, and ``rights.yaml`` where masters create such tokens."""
    addresses = {
        **{node.name: node.address for site in cluster.sites for node in site.nodes},
        **{name: each.private for name, each in outputs.instances.items() if each.private},
    }
    data = {name: str(address) for name, address in sorted(addresses.items())}
    documents = {"addresses.yaml": [of("v1", "ConfigMap", ADDRESSES, namespace=SYSTEM, data=data)]}
    if cluster.secrets.store != "ssm":
        return documents
    return documents | {"rights.yaml": static("joining/rights")}
