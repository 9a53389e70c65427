"""Whether a user has rights in the cluster, and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infra.commands import cluster_access
from infra.commands.environment import Project
from infra.drive import clock
from infra.errors import CausewayError

if TYPE_CHECKING:
    from infra.drive.secrets import Store


def known(project: Project, store: Store, login: str) -> bool:
    """Whether a user has, or had, access to the cluster: by a certificate, or by single sign-on."""
    from infra.drive.kubernetes import secrets

    if project.cluster.control_plane is None:
        return False
    oidc = project.cluster.access.oidc
    return login in secrets.issued(store) or (oidc is not None and login in oidc.people.values())


def revoked(project: Project, store: Store, login: str, *, push: bool) -> dict[str, Any]:
    """Remove a user's rights in the cluster immediately: ``{"until", "bindings", "tokens", "error"}``; empty
    if there is no cluster. Also works for users without a cluster certificate."""
    from infra.drive.kubernetes import kubeconfig as made
    from infra.drive.kubernetes import secrets

    if project.cluster.control_plane is None or not secrets.exist(store):
        return {}
    before = secrets.revoke(store, login)
    found: dict[str, Any] = {
        "until": before.until.isoformat() if before and before.until > clock.now() else None,
        "bindings": [],
        "tokens": [],
        "error": None,
    }
    if not push:
        return found
    try:
        with cluster_access.reach(project, store) as there:
            found["bindings"] = made.strip(there.api, login)
            found["tokens"] = made.tokens(there.api, _namespaces(project, login, found["bindings"]))
    except CausewayError as problem:
        found["error"] = str(problem)
    return found


def _namespaces(project: Project, login: str, bindings: list[str]) -> set[str]:
    """The namespaces in which a user had rights, also before an earlier run that removed them."""
    access = project.cluster.access
    users = [each for each in access.users if each.login == login]
    groups = {name for each in users for name in each.groups}
    return {
        *(each.partition("/")[0] for each in bindings if "/" in each),
        *(each.namespace for each in users),
        *(each.namespace for each in access.groups if each.name in groups),
    }
