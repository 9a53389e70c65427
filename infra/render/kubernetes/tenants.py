"""The owner of a namespace: labels by which policies, queues and rights select namespaces of users and
groups, and the numeric ids with which its pods access files."""

from __future__ import annotations

from typing import Final

from infra.catalogue.labels import OURS
from infra.model import Cluster, Outputs
from infra.model.platform import Group, User

TENANT: Final = f"{OURS}/tenant"
"""``user`` or ``team``. System namespaces do not have this label, and the policies do not apply to them."""
TEAM: Final = f"{OURS}/team"
"""The namespace of the group that work is accounted to."""
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
"""The label with the Pod Security level of a namespace."""

UID: Final = f"{OURS}/uid"
GIDS: Final = f"{OURS}/gids"
"""Annotations: the uid and the gids (comma-separated, the primary one first) with which the namespace's pods
use machines' paths."""

SHARED: Final = "shared"
"""What work of users without a group is accounted to."""

OF_TENANTS: Final = {"matchExpressions": [{"key": TENANT, "operator": "Exists"}]}
"""Selects the namespaces of people and groups."""


def team_of(cluster: Cluster, user: User) -> str:
    """The namespace of the user's first group, or ``shared``."""
    namespaces = {group.name: group.namespace for group in cluster.access.groups}
    return next((namespaces[name] for name in user.groups if name in namespaces), SHARED)


def ids_of(cluster: Cluster, user: User) -> dict[str, str]:
    """The annotations with a user's ids, the same as on machines: the first gid is that of the user's
    private group."""
    others = [group.gid for group in cluster.access.groups if group.name in user.groups]
    return _ids(user.uid, [user.uid, *others])


def ids_of_group(group: Group) -> dict[str, str]:
    """The annotations with a group's ids.

    Not those of a member, as all members can access each other's pods there. No user has the group's number
    as a uid.
    """
    return _ids(group.gid, [group.gid])


def _ids(uid: int, gids: list[int]) -> dict[str, str]:
    return {UID: str(uid), GIDS: ",".join(map(str, gids))}


def role_of(namespace: str, outputs: Outputs) -> dict[str, str]:
    """The annotation of a service account with the AWS role that Mountpoint for S3 assumes; none before
    apply. It has no effect unless the role's trust policy allows the account."""
    return {"eks.amazonaws.com/role-arn": outputs.roles[namespace]} if namespace in outputs.roles else {}


def members(cluster: Cluster, group: Group) -> tuple[User, ...]:
    """The members of a group, by login."""
    return tuple(user for user in cluster.access.users if group.name in user.groups)


def subject(user: User) -> dict[str, str]:
    """A user as a binding's subject.

    By name, never by a group in the certificate: a certificate cannot be revoked, a binding can be changed.
    """
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.login}
