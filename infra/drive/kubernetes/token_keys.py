"""The keys of service accounts' tokens on masters, and tokens that would be lost with one."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from infra.drive.kubernetes.api import Api

TAKE: Final = """\
set -eu
cd /etc/causeway/secrets/kubernetes-pki
install -m 0600 sa.key /etc/kubernetes/pki/sa.key
install -m 0644 sa.pub /etc/kubernetes/pki/sa.pub
causeway-certificates --restart kube-apiserver
exec causeway-certificates --restart kube-controller-manager
"""
"""On a master, once it was brought the keys: these two read them when they start. By the names of the
kubernetes cookbook."""

LIFE: Final = timedelta(hours=24)
"""The kubelet writes another token for a pod after four fifths of a token's life, and after 24 hours at the
latest (Kubernetes, "Configure Service Accounts for Pods", projected volumes)."""


def lasting(api: Api, keys: Collection[str]) -> list[str]:
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
