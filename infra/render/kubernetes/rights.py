"""Service accounts, and roles in a namespace with their bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.render.kubernetes.manifests import Object, of

GROUP: Final = "rbac.authorization.k8s.io"
API: Final = f"{GROUP}/v1"


def account(name: str, namespace: str, *, labels: Mapping[str, str] | None = None) -> Object:
    """A service account."""
    return of("v1", "ServiceAccount", name, namespace=namespace, labels=labels)


def within(
    namespace: str,
    name: str,
    rules: Sequence[Object],
    subjects: Sequence[Object],
    *,
    labels: Mapping[str, str] | None = None,
) -> list[Object]:
    """A role and its binding, with the same name: the rights of the subjects in a namespace."""
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
