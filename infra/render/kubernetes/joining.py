"""What masters need to approve certificates of kubelets (cookbooks/kubernetes, ``upkeep``).

Rights of the tokens that machines of pools join with. Requests of kubeadm's default group are approved for
any node's name. This group may do the same, by kubeadm's own roles, except for that: masters approve its
requests, for instances of pools that have not joined yet.

Addresses of machines with a name of their own: the only ones that their serving certificates may have.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, of
from infra.render.kubernetes.rights import API, GROUP

TOKENS: Final = "system:bootstrappers:causeway:pools"
"""The group of the tokens (``kubernetes_node.token``)."""

_ROLES: Final = {
    "request-certificates": "system:node-bootstrapper",
    "get-nodes": "kubeadm:get-nodes",
}
_CONFIGURATION: Final = {
    "kubeadm-config": "kubeadm:nodes-kubeadm-config",
    "kubelet-config": "kubeadm:kubelet-config",
}
"""In kube-system."""


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
    return documents | {
        "rights.yaml": [
            *(_binding("ClusterRoleBinding", name, role) for name, role in _ROLES.items()),
            *(_binding("RoleBinding", name, role, "kube-system") for name, role in _CONFIGURATION.items()),
        ]
    }


def _binding(kind: str, name: str, role: str, namespace: str | None = None) -> Object:
    return of(
        API,
        kind,
        f"causeway:join:{name}",
        namespace=namespace,
        roleRef={"apiGroup": GROUP, "kind": kind.removesuffix("Binding"), "name": role},
        subjects=[{"apiGroup": GROUP, "kind": "Group", "name": TOKENS}],
    )
