"""Who may do what: rights of the spec's people.

Who may become root on machines runs the cluster. Everybody else works in the own namespace and in those of
their groups, and sees the nodes, the queues and the classes of work. Who has left the spec is in no binding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from infra.catalogue.identities import CLIENT_SIGNER, KUBECONFIGS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Object, of
from infra.render.kubernetes.tenants import members, subject

_GROUP: Final = "rbac.authorization.k8s.io"
_API: Final = f"{_GROUP}/v1"
_MEMBER: Final = "causeway:member"
_VIEWER: Final = "causeway:viewer"

_READ: Final = ("get", "list", "watch")
_ALL: Final = (*_READ, "create", "update", "patch", "delete", "deletecollection")


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Roles, then who has them."""
    return {
        "roles.yaml": [
            of(_API, "ClusterRole", _MEMBER, rules=_member_rules()),
            of(_API, "ClusterRole", _VIEWER, rules=_viewer_rules()),
            of(_API, "ClusterRole", KUBECONFIGS, rules=_certificate_rules()),
        ],
        "everywhere.yaml": list(_everywhere(cluster)),
        "teams.yaml": [
            _binding(group.namespace, [subject(user) for user in who])
            for group in cluster.access.groups
            if (who := members(cluster, group))
        ],
        "people.yaml": [_binding(user.namespace, [subject(user)]) for user in cluster.access.users],
    }


def _everywhere(cluster: Cluster) -> Iterator[Object]:
    roots = {group.name for group in cluster.access.groups if group.sudo}
    engineers = [subject(user) for user in cluster.access.users if roots & {*user.groups}]
    if engineers:
        yield _everywhere_binding("causeway:engineers", "cluster-admin", engineers)
    if cluster.access.users:
        everybody = [subject(user) for user in cluster.access.users]
        yield _everywhere_binding("causeway:people", _VIEWER, everybody)
        account = {"apiGroup": _GROUP, "kind": "User", "name": KUBECONFIGS}
        yield _everywhere_binding(KUBECONFIGS, KUBECONFIGS, [account])


def _everywhere_binding(name: str, role: str, who: Sequence[dict[str, str]]) -> Object:
    reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role}
    return of(_API, "ClusterRoleBinding", name, roleRef=reference, subjects=list(who))


def _binding(namespace: str, who: Sequence[dict[str, str]]) -> Object:
    reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _MEMBER}
    return of(_API, "RoleBinding", "members", namespace=namespace, roleRef=reference, subjects=list(who))


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _member_rules() -> list[dict[str, Any]]:
    """What a person does in a namespace: run work, look at it, open pages.

    Not ``edit``, which charts may widen and which hands out tokens of service accounts. The walls of the
    namespace (network policy, quota, defaults, rights, queue) are seen, not moved.
    """
    return [
        _rule(
            "",
            ["pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts"],
            _ALL,
        ),
        _rule("", ["pods/log", "pods/status", "events", "resourcequotas", "limitranges"], _READ),
        _rule("", ["pods/exec", "pods/attach", "pods/portforward"], ["get", "create"]),
        _rule("", ["pods/eviction"], ["create"]),
        _rule("", ["pods/ephemeralcontainers"], ["get", "update", "patch"]),
        _rule("events.k8s.io", ["events"], _READ),
        _rule("apps", ["deployments", "statefulsets", "replicasets"], _ALL),
        # One on every node is for who runs the cluster.
        _rule("apps", ["daemonsets"], _READ),
        _rule("apps", ["deployments/scale", "statefulsets/scale"], ["get", "update", "patch"]),
        _rule("batch", ["jobs", "cronjobs"], _ALL),
        _rule("batch", ["jobs/status", "cronjobs/status"], _READ),
        _rule("jobset.x-k8s.io", ["jobsets"], _ALL),
        _rule("autoscaling", ["horizontalpodautoscalers"], _ALL),
        _rule("policy", ["poddisruptionbudgets"], _ALL),
        _rule("networking.k8s.io", ["ingresses"], _ALL),
        _rule("networking.k8s.io", ["networkpolicies"], _READ),
        _rule("discovery.k8s.io", ["endpointslices"], _READ),
        _rule("rbac.authorization.k8s.io", ["roles", "rolebindings"], _READ),
        _rule("kueue.x-k8s.io", ["localqueues", "workloads"], _READ),
        # Takes a job out of its queue for good: kubectl patch workload … {"spec":{"active":false}}
        _rule("kueue.x-k8s.io", ["workloads"], ["patch", "update", "delete"]),
        _rule("visibility.kueue.x-k8s.io", ["localqueues/pendingworkloads"], ["get"]),
        _rule("autoscaling.x-k8s.io", ["provisioningrequests"], _READ),
        _rule("metrics.k8s.io", ["pods"], _READ),
    ]


def _certificate_rules() -> list[dict[str, Any]]:
    """What a master does for `invoke kubeconfig`: it may approve client certificates, and no others: neither
    those of kubelets nor a server's."""
    api = "certificates.k8s.io"
    return [
        _rule(api, ["certificatesigningrequests"], [*_READ, "create", "delete"]),
        _rule(api, ["certificatesigningrequests/approval"], ["update"]),
        {**_rule(api, ["signers"], ["approve"]), "resourceNames": [CLIENT_SIGNER]},
    ]


def _viewer_rules() -> list[dict[str, Any]]:
    """What everybody sees of the whole: what there is to run on, and who waits for it."""
    return [
        _rule("", ["nodes", "namespaces", "persistentvolumes"], _READ),
        _rule("scheduling.k8s.io", ["priorityclasses"], _READ),
        _rule("storage.k8s.io", ["storageclasses"], _READ),
        _rule("metrics.k8s.io", ["nodes"], _READ),
        _rule(
            "kueue.x-k8s.io",
            ["clusterqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses"],
            _READ,
        ),
        _rule("visibility.kueue.x-k8s.io", ["clusterqueues/pendingworkloads"], ["get"]),
        # Why a pod was refused, or changed.
        _rule(
            "admissionregistration.k8s.io",
            ["validatingadmissionpolicies", "mutatingadmissionpolicies"],
            _READ,
        ),
    ]
