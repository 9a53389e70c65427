"""Steps after a change of the cluster's keys: masters load them, secrets are re-encrypted, and tokens are
found that would become invalid."""

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
"""A script for a master that has received the keys: it restarts the API server, which reads them at start.
Names are those of the kubernetes cookbook."""


def rewrite_secrets(api: Api) -> int:
    """Rewrite every secret unchanged, which encrypts it with the first key; returns their number
    (Kubernetes, "Ensure all secrets are encrypted")."""
    count = 0
    for each in api.list("/api/v1/secrets"):
        about = each["metadata"]
        path = f"/api/v1/namespaces/{about['namespace']}/secrets/{about['name']}"
        try:
            api.replace(path, {"apiVersion": "v1", "kind": "Secret", **each})
        except ApiError as problem:
            # Deleted, or changed since it was read, and so encrypted with the first key.
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
"""A script for a master that has received the keys: it restarts the two programs that read them at start.
Names are those of the kubernetes cookbook."""

TOKEN_LIFE: Final = timedelta(hours=24)
"""The kubelet renews a pod's token after 80 % of its lifetime, and after 24 hours at the latest (Kubernetes,
"Configure Service Accounts for Pods", projected volumes)."""


def lasting_tokens(api: Api, keys: Collection[str]) -> list[str]:
    """Secrets with a non-expiring token that one of these keys signed, as ``namespace/name``: the token is
    not renewed while the secret exists."""
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
