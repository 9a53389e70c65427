"""Secrets of the cluster that come from the environment's store: no rendered file has their values."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from infra.drive.kubernetes import apply
from infra.drive.kubernetes.api import Api


def put(api: Api, namespace: str, name: str, values: Mapping[str, str], *, kind: str = "Opaque") -> str:
    """The Secret has these values and no others; without any it is deleted. What was done, in a word."""
    folder = f"/api/v1/namespaces/{namespace}/secrets"
    data = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    found = api.find(f"{folder}/{name}")
    if found is None and not data:
        return "none"
    if not data:
        api.delete(f"{folder}/{name}")
        return "deleted"
    if found is None:
        labels = {apply.MANAGED_BY: apply.OURS}
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        api.create(
            folder, {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": data}
        )
        return "created"
    old = found.get("data") or {}
    if old == data:
        return "unchanged"
    gone: dict[str, None] = dict.fromkeys(key for key in old if key not in data)
    api.patch(f"{folder}/{name}", {"data": {**data, **gone}})
    return "updated"
