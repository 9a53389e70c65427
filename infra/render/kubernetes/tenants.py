"""Whose a namespace is: labels by which rules, queues and rights find those of people and groups, and the
numbers under which its pods use files."""

from __future__ import annotations

from typing import Final

from infra.catalogue.labels import OURS
from infra.model import Cluster, Outputs
from infra.model.platform import Group, User

TENANT: Final = f"{OURS}/tenant"
"""``user`` or ``team``. What is ours, and Kubernetes' own, has no such label, and no such rules."""
TEAM: Final = f"{OURS}/team"
"""The namespace of the group on whose account work goes."""
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
"""The label with the Pod Security level of a namespace."""

UID: Final = f"{OURS}/uid"
GIDS: Final = f"{OURS}/gids"
"""Annotations: under which uid, and which gids, parted by commas and the primary one first, pods of the
namespace use the paths of machines."""

SHARED: Final = "shared"
"""On whose account work of people goes who are in no group."""

OF_TENANTS: Final = {"matchExpressions": [{"key": TENANT, "operator": "Exists"}]}
"""Selects the namespaces of people and groups."""


def team_of(cluster: Cluster, user: User) -> str:
    """The namespace of the user's first group, or ``shared``."""
    namespaces = {group.name: group.namespace for group in cluster.access.groups}
    return next((namespaces[name] for name in user.groups if name in namespaces), SHARED)


def ids_of(cluster: Cluster, user: User) -> dict[str, str]:
    """The annotations with a user's numbers, as machines have them: the first gid is that of the user's own
    group."""
    others = [group.gid for group in cluster.access.groups if group.name in user.groups]
    return _ids(user.uid, [user.uid, *others])


def ids_of_group(group: Group) -> dict[str, str]:
    """The annotations with a group's numbers.

    Not those of a member: all of them may look into each other's pods there. Nobody has its number as a uid.
    """
    return _ids(group.gid, [group.gid])


def _ids(uid: int, gids: list[int]) -> dict[str, str]:
    return {UID: str(uid), GIDS: ",".join(map(str, gids))}


def role_of(namespace: str, outputs: Outputs) -> dict[str, str]:
    """The annotation of service accounts by which Mountpoint for S3 knows what to become at AWS; none before
    apply. What the role's own policy does not trust, it is of no use to."""
    return {"eks.amazonaws.com/role-arn": outputs.roles[namespace]} if namespace in outputs.roles else {}


def members(cluster: Cluster, group: Group) -> tuple[User, ...]:
    """Everybody in a group, by login."""
    return tuple(user for user in cluster.access.users if group.name in user.groups)


def subject(user: User) -> dict[str, str]:
    """A person, as bindings of rights name one.

    By name, never by a group of the certificate: a certificate can't be taken back, a line of a binding can.
    """
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.login}
