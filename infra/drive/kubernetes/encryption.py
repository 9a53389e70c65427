"""Encryption at rest: masters take another key, and what was written with an older one is rewritten."""

from __future__ import annotations

from typing import Final

from infra.drive.kubernetes.api import Api, ApiError

TAKE: Final = """\
set -eu
install -m 0600 /etc/causeway/secrets/kubernetes-encryption.yaml /etc/kubernetes/encryption.yaml
exec causeway-certificates --restart kube-apiserver
"""
"""On a master, once it was brought the keys: its API server reads them when it starts. By the names of the
kubernetes cookbook."""


def rewrite(api: Api) -> int:
    """Write every secret as it is, by which it is encrypted with the first key; how many there are
    (Kubernetes, "Ensure all secrets are encrypted")."""
    count = 0
    for each in api.list("/api/v1/secrets"):
        about = each["metadata"]
        path = f"/api/v1/namespaces/{about['namespace']}/secrets/{about['name']}"
        try:
            api.replace(path, {"apiVersion": "v1", "kind": "Secret", **each})
        except ApiError as problem:
            # Gone, or written by somebody else since it was read: with the first key, then.
            if problem.code not in {404, 409}:
                raise
        count += 1
    return count
