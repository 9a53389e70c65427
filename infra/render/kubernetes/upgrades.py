"""What a worker may do while it is upgraded: drain itself, and hold the turn (cookbooks/kubernetes, upgrade).

Its own credentials do not suffice: a kubelet may not evict pods. ``invoke cluster.upgrade`` brings it
others, for a user that exists for this alone, and that end after some hours.
"""

from __future__ import annotations

from typing import Any, Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Object, of

USER: Final = "causeway:upgrade"
"""The name in the certificate (infra.drive.kubernetes.upgrade)."""

_GROUP: Final = "rbac.authorization.k8s.io"
_API: Final = f"{_GROUP}/v1"
_NAMESPACE: Final = "kube-system"


def objects(_cluster: Cluster, _outputs: Outputs = NO_OUTPUTS) -> Documents:
    """Its rights everywhere, and in kube-system."""
    everywhere = [
        _rule("", ["nodes"], ["get", "list", "watch", "patch"]),
        _rule("", ["pods"], ["get", "list"]),
        _rule("", ["pods/eviction"], ["create"]),
        _rule("apps", ["daemonsets"], ["get"]),
    ]
    there = [
        _rule(
            "coordination.k8s.io", ["leases"], ["get", "list", "watch", "create", "update", "patch", "delete"]
        ),
        {**_rule("", ["configmaps"], ["get"]), "resourceNames": ["kubeadm-config"]},
    ]
    return {
        "rights.yaml": [
            of(_API, "ClusterRole", USER, rules=everywhere),
            _binding("ClusterRoleBinding", "ClusterRole", None),
            of(_API, "Role", USER, namespace=_NAMESPACE, rules=there),
            _binding("RoleBinding", "Role", _NAMESPACE),
        ]
    }


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _binding(kind: str, role: str, namespace: str | None) -> Object:
    return of(
        _API,
        kind,
        USER,
        namespace=namespace,
        roleRef={"apiGroup": _GROUP, "kind": role, "name": USER},
        subjects=[{"apiGroup": _GROUP, "kind": "User", "name": USER}],
    )
