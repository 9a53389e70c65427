"""The secrets with which machines join the cluster: masters get the CAs, new nodes a bootstrap token.

A token lets a machine request a kubelet certificate (Kubernetes, "Authenticating with Bootstrap Tokens"). It
is valid for half an hour; each run creates one.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.secrets import Keys, encryption_config
from infra.model import Cluster
from infra.model.kubernetes import Taint

FOLDER: Final = "etc/causeway/secrets"
"""The folder of secrets on machines, relative to ``/``."""

TOKEN_LIFE: Final = timedelta(minutes=30)

_ALPHABET: Final = string.ascii_lowercase + string.digits


def secret_files(keys: Keys, join: str | None, *, master: bool) -> dict[str, bytes]:
    """Path → contents of the secret files of one node. ``join`` is only for a node that has not joined
    yet."""
    files: dict[str, bytes] = {}
    if master:
        for path, text in keys.pki().items():
            files[f"{FOLDER}/kubernetes-pki/{path}"] = text.encode()
        files[f"{FOLDER}/kubernetes-encryption.yaml"] = encryption_config(keys.encryption).encode()
    if join is not None:
        files[f"{FOLDER}/kubernetes-join.yaml"] = join.encode()
    return files


def new_token(api: Api, now: datetime) -> str:
    """A new token, valid for half an hour from now."""
    ident, secret = _characters(6), _characters(16)
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": f"bootstrap-token-{ident}",
            "namespace": "kube-system",
            "labels": {"app.kubernetes.io/managed-by": "causeway"},
        },
        "stringData": {
            "description": "of a converge",
            "token-id": ident,
            "token-secret": secret,
            "expiration": f"{now + TOKEN_LIFE:%Y-%m-%dT%H:%M:%SZ}",
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    }
    api.create("/api/v1/namespaces/kube-system/secrets", body)
    return f"{ident}.{secret}"


def join_file(token: str, authority: str, endpoint: str) -> str:
    """``kubernetes-join.yaml``, as JSON. ``endpoint``: the API's address for machines, ``host:port``."""
    document: Mapping[str, object] = {
        "token": token,
        "ca_cert_hashes": [certificates.pin(authority)],
        "endpoint": endpoint,
    }
    return json.dumps(document, indent=2) + "\n"


def node_names(api: Api) -> frozenset[str]:
    """The machines that have joined. A VPN server's node may exist before it joins, see
    ``keep_pod_blocks``."""
    return frozenset(str(each["metadata"]["name"]) for each in api.list("/api/v1/nodes") if has_joined(each))


def has_joined(node: Mapping[str, Any]) -> bool:
    """Whether a kubelet has registered."""
    return bool(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion"))


def keep_pod_blocks(api: Api, cluster: Cluster, names: Collection[str]) -> None:
    """Create nodes for VPN servers that have not joined, with their fixed pod CIDRs, which policies refer
    to.

    A node's pod CIDR cannot change once set, and kube-controller-manager assigns any free one to a node
    without one. So the node is created before its kubelet registers; the kubelet then adopts it. As a
    kubelet applies its labels and taints only to a node that it creates, they are set here too.
    """
    for server in cluster.access.vpn.servers:
        path = f"/api/v1/nodes/{server.node}"
        if server.pods is None or server.node not in names or api.find(path) is not None:
            continue
        labels, taints = _of_machine(cluster, server.node)
        api.create(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": server.node, "labels": dict(labels)},
                "spec": {
                    "podCIDR": str(server.pods),
                    "podCIDRs": [str(server.pods)],
                    "taints": [
                        {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints
                    ],
                },
            },
        )


def _of_machine(cluster: Cluster, name: str) -> tuple[Mapping[str, str], Iterable[Taint]]:
    for instance in cluster.instances:
        if instance.hostname == name:
            return instance.labels, instance.taints
    node = next(node for site in cluster.sites for node in site.nodes if node.name == name)
    return node.labels, node.taints


def _characters(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))
