"""Rights: accounts of programs, roles for the whole cluster or a namespace, and what binds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.render.kubernetes.manifests import Object, of

GROUP: Final = "rbac.authorization.k8s.io"
API: Final = f"{GROUP}/v1"


def account(name: str, namespace: str, *, labels: Mapping[str, str] | None = None) -> Object:
    """A service account."""
    return of("v1", "ServiceAccount", name, namespace=namespace, labels=labels)


def bound(
    name: str, role: str, program: str, namespace: str, *, labels: Mapping[str, str] | None = None
) -> Object:
    """What gives a program's account a role everywhere."""
    return of(
        API,
        "ClusterRoleBinding",
        name,
        labels=labels,
        roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        subjects=[{"kind": "ServiceAccount", "name": program, "namespace": namespace}],
    )


def within(
    namespace: str,
    name: str,
    rules: Sequence[Object],
    subjects: Sequence[Object],
    *,
    labels: Mapping[str, str] | None = None,
) -> list[Object]:
    """A role and its binding of one name: what these may do in a namespace."""
    return [
        of(API, "Role", name, namespace=namespace, labels=labels, rules=list(rules)),
        of(
            API,
            "RoleBinding",
            name,
            namespace=namespace,
            labels=labels,
            roleRef={"apiGroup": GROUP, "kind": "Role", "name": name},
            subjects=list(subjects),
        ),
    ]


def everywhere(
    program: str,
    namespace: str,
    rules: Sequence[Object],
    *,
    role: str,
    labels: Mapping[str, str] | None = None,
) -> list[Object]:
    """A program's account, and a role and its binding of one name: what it may do in the whole cluster."""
    return [
        account(program, namespace, labels=labels),
        of(API, "ClusterRole", role, labels=labels, rules=list(rules)),
        bound(role, role, program, namespace, labels=labels),
    ]
