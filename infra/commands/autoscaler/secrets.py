"""`invoke autoscaler.secret`, and how what it keeps comes into the cluster.

The Slack token and the webhook's address are in the environment's secrets store, under the names that the
spec gives them. `invoke cluster.up` makes a Secret of them, which the controller mounts.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infra.commands.environment import Understood
from infra.commands.terminal import ask_secret, say
from infra.commands.vpn import keeping
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.drive.kubernetes.api import Api
    from infra.drive.secrets import Store
    from infra.model import Cluster

WAYS = ("slack", "webhook")


def names(cluster: Cluster) -> dict[str, str]:
    """Way → the name of its secret in the store."""
    settings = cluster.autoscaler
    found = {"slack": (settings.slack or "").removeprefix("#"), "webhook": settings.webhook or ""}
    return {way: name for way, name in found.items() if name}


def keep(understood: Understood, way: str) -> int:
    """Keep what a person types, or what standard input has, in the store."""
    if way not in WAYS:
        raise UsageError(f"{way}: say slack, for its token, or webhook, for its address")
    name = names(understood.cluster).get(way)
    if name is None:
        raise UsageError(
            f"{understood.environment.spec_file} has no autoscaler.notices.{way}: write it there first"
        )
    asked = "The token (xoxb-…):" if way == "slack" else "The address (https://…):"
    value = (ask_secret(asked) if sys.stdin.isatty() else sys.stdin.read()).strip()
    _check(way, value)
    store = keeping.store(understood)
    store.put(name, value)
    say(f"{name} is kept in {store}; `invoke cluster.up {understood.environment.options}` brings it")
    return 0


def _check(way: str, value: str) -> None:
    """``UsageError`` for what is certainly something else. It is not shown: it may be another secret."""
    if not value:
        raise UsageError("nothing was given: type it, or pipe it in")
    if any(letter.isspace() for letter in value):
        raise UsageError("there is white space in it: that is neither a token nor an address")
    if way == "webhook" and not value.startswith(("https://", "http://")):
        raise UsageError("a webhook's address begins with https://")
    if way == "slack" and not value.startswith("xox"):
        raise UsageError("a Slack token begins with xox: a bot's with xoxb-")


def bring(api: Api, store: Store, cluster: Cluster) -> tuple[str, tuple[str, ...]]:
    """Make the Secret as the store has it: what was done, and the names that the store does not have."""
    from infra.drive.kubernetes import apply
    from infra.render.kubernetes.autoscaler import NOTICES

    wanted = names(cluster)
    known = store.read(wanted.values()) if wanted else {}
    data = {way: _coded(known[name]) for way, name in wanted.items() if name in known}
    missing = tuple(name for name in wanted.values() if name not in known)
    folder = f"/api/v1/namespaces/{apply.NAMESPACE}/secrets"
    return _put(api, folder, NOTICES, data), missing


def _put(api: Api, folder: str, name: str, data: Mapping[str, str]) -> str:
    from infra.drive.kubernetes import apply

    found = api.find(f"{folder}/{name}")
    if found is None and not data:
        return "none"
    if not data:
        api.delete(f"{folder}/{name}")
        return "taken away"
    if found is None:
        api.create(folder, _secret(name, apply.NAMESPACE, {apply.MANAGED_BY: apply.OURS}, data))
        return "brought"
    old = found.get("data") or {}
    if old == data:
        return "there"
    gone: dict[str, None] = dict.fromkeys(key for key in old if key not in data)
    api.patch(f"{folder}/{name}", {"data": {**data, **gone}})
    return "brought anew"


def _secret(name: str, namespace: str, labels: Mapping[str, str], data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "data": dict(data),
    }


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
