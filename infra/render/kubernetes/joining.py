"""Rights of the tokens that machines of pools join with (cookbooks/kubernetes, ``upkeep``).

Requests of kubeadm's default group are approved for any node's name. This group may do the same, by kubeadm's
own roles, except for that: masters approve its requests, for instances of pools that have not joined yet.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Object, of
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


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Nothing where masters create no such tokens."""
    if cluster.secrets.store != "ssm":
        return {}
    return {
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
