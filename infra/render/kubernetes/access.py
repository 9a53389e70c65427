"""RBAC rights of users, masters and workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from infra.catalogue.identities import KUBECONFIGS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, of, static
from infra.render.kubernetes.tenants import members, subject

_GROUP: Final = "rbac.authorization.k8s.io"
_API: Final = f"{_GROUP}/v1"
_MEMBER: Final = "causeway:member"
_VIEWER: Final = "causeway:viewer"


def access(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """RBAC rights of the spec's users.

    Users who may become root on machines are cluster administrators. Everyone else has rights in their own
    namespace and in those of their groups, and may read nodes, queues and priority classes. Users who left
    the spec are in no binding.

    Returns roles, then bindings.
    """
    return {
        "roles.yaml": static("access/roles"),
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


JOIN_TOKENS: Final = "system:bootstrappers:causeway:pools"
"""The group of the tokens (``kubernetes_node.token``)."""
ADDRESSES: Final = "node-addresses"
"""The ConfigMap that masters read (``kubernetes_node.approval``)."""


def joining(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """What masters need to approve kubelet certificates (cookbooks/kubernetes, ``upkeep``).

    The rights of bootstrap tokens with which pool instances join; and the addresses of named machines, the
    only ones that their serving certificates may have.

    Returns ``addresses.yaml``, and ``rights.yaml`` if masters create such tokens.
    """
    addresses = {
        **{node.name: node.address for site in cluster.sites for node in site.nodes},
        **{name: each.private for name, each in outputs.instances.items() if each.private},
    }
    data = {name: str(address) for name, address in sorted(addresses.items())}
    documents = {"addresses.yaml": [of("v1", "ConfigMap", ADDRESSES, namespace=SYSTEM, data=data)]}
    if cluster.secrets.store != "ssm":
        return documents
    return documents | {"rights.yaml": static("joining/rights")}


def upgrades(_cluster: Cluster, _outputs: Outputs = NO_OUTPUTS) -> Documents:
    """The rights of a worker while it is upgraded."""
    return {"rights.yaml": static("upgrades/rights")}
