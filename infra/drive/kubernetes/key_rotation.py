"""What follows a change of the cluster's keys: masters take them, secrets are encrypted with the new one, and
tokens are found that would be lost.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from infra.drive.kubernetes.api import Api, ApiError

TAKE_ENCRYPTION_KEYS: Final = """\
set -eu
install -m 0600 /etc/causeway/secrets/kubernetes-encryption.yaml /etc/kubernetes/encryption.yaml
exec causeway-certificates --restart kube-apiserver
"""
"""On a master, once it was brought the keys: its API server reads them when it starts. By the names of the
kubernetes cookbook."""


def rewrite_secrets(api: Api) -> int:
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


TAKE_SERVICE_ACCOUNT_KEYS: Final = """\
set -eu
cd /etc/causeway/secrets/kubernetes-pki
install -m 0600 sa.key /etc/kubernetes/pki/sa.key
install -m 0644 sa.pub /etc/kubernetes/pki/sa.pub
causeway-certificates --restart kube-apiserver
exec causeway-certificates --restart kube-controller-manager
"""
"""On a master, once it was brought the keys: these two read them when they start. By the names of the
kubernetes cookbook."""

TOKEN_LIFE: Final = timedelta(hours=24)
"""The kubelet writes another token for a pod after four fifths of a token's life, and after 24 hours at the
latest (Kubernetes, "Configure Service Accounts for Pods", projected volumes)."""


def lasting_tokens(api: Api, keys: Collection[str]) -> list[str]:
    """Secrets with a token that never ends and that one of these keys signed, ``namespace/name``: nothing
    writes another one while it is there."""
    found = []
    for each in api.list("/api/v1/secrets", fieldSelector="type=kubernetes.io/service-account-token"):
        token = base64.b64decode((each.get("data") or {}).get("token", "")).decode()
        if token and _key_of(token) in keys:
            found.append(f"{each['metadata']['namespace']}/{each['metadata']['name']}")
    return sorted(found)


def _key_of(token: str) -> str:
    head = token.partition(".")[0]
    try:
        return str(json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).get("kid"))
    except ValueError:
        return ""
