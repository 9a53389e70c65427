"""What machines are brought to become nodes: masters their authorities, those that are no node yet a token.

A token lets a machine ask for a kubelet's certificate (Kubernetes, "Authenticating with Bootstrap
Tokens"). It lasts half an hour, one a run.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.secrets import Keys, encryption_config
from infra.errors import DriveError
from infra.model import Cluster
from infra.model.kubernetes import Taint

FOLDER: Final = "etc/causeway/secrets"
"""Where machines keep secrets, relative to ``/``."""

TOKEN_LIFE: Final = timedelta(minutes=30)

CONTROL_PLANE: Final = "recipe[kubernetes::control_plane]"
WORKER: Final = "recipe[kubernetes::worker]"

_ALPHABET: Final = string.ascii_lowercase + string.digits
_ROLE: Final = re.compile(r"role\[(.+)\]")


def recipes(build: Path, node: str) -> frozenset[str]:
    """The recipes that a machine runs, as rendered: its run list with every role in it spelt out.

    ``DriveError`` for one without a node object.
    """
    roles = build / "chef" / "roles"

    @cache
    def of_role(name: str) -> frozenset[str]:
        file = roles / f"{name}.json"
        return (
            spelt(json.loads(file.read_text(encoding="utf-8"))["run_list"]) if file.is_file() else frozenset()
        )

    def spelt(run_list: Iterable[str]) -> frozenset[str]:
        found: set[str] = set()
        for item in run_list:
            role = _ROLE.fullmatch(item)
            found |= of_role(role[1]) if role else {item}
        return frozenset(found)

    own = build / "chef" / "nodes" / f"{node}.json"
    try:
        return spelt(json.loads(own.read_text(encoding="utf-8"))["run_list"])
    except FileNotFoundError:
        raise DriveError(f"{own} is not there: {node} has no node object") from None


def becomes_node(run: Collection[str]) -> bool:
    """Whether a machine with these recipes is to be a node."""
    return CONTROL_PLANE in run or WORKER in run


def brought(run: Collection[str], keys: Keys | None, join: str | None) -> dict[str, bytes]:
    """Path → contents of the secrets of one machine. ``join`` is for one that is no node yet."""
    found: dict[str, bytes] = {}
    if CONTROL_PLANE in run and keys is not None:
        for path, text in keys.pki().items():
            found[f"{FOLDER}/kubernetes-pki/{path}"] = text.encode()
        found[f"{FOLDER}/kubernetes-encryption.yaml"] = encryption_config(keys.encryption).encode()
    if join is not None and becomes_node(run):
        found[f"{FOLDER}/kubernetes-join.yaml"] = join.encode()
    return found


def new_token(api: Api, now: datetime) -> str:
    """A token that the API takes from now on, for half an hour."""
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
    """``kubernetes-join.yaml``; JSON, which is YAML. ``endpoint`` as machines reach it, ``host:port``."""
    document: Mapping[str, object] = {
        "token": token,
        "ca_cert_hashes": [certificates.pin(authority)],
        "endpoint": endpoint,
    }
    return json.dumps(document, indent=2) + "\n"


def node_names(api: Api) -> frozenset[str]:
    """The machines that have joined. Of a VPN server there may be a node before, see ``keep_pod_blocks``."""
    return frozenset(str(each["metadata"]["name"]) for each in api.list("/api/v1/nodes") if has_joined(each))


def has_joined(node: Mapping[str, Any]) -> bool:
    """Whether a kubelet has told of itself."""
    return bool(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion"))


def keep_pod_blocks(api: Api, cluster: Cluster, names: Collection[str]) -> None:
    """Gives VPN servers that are to join their blocks of pods' addresses, by which policies know them.

    A block is a node's for good, and whoever is first gives it: kube-controller-manager takes any that is
    free for a node without one. So the node is there before its kubelet, which finds it and takes it for
    its own; as a kubelet's labels and taints count only for a node that it brings, this one has them too.
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
