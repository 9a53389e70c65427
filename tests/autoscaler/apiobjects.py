"""Objects as the Kubernetes API writes them, with as little in them as a test needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from infra.autoscaler.observed.decoding import Decoder, snapshot
from infra.autoscaler.observed.snapshot import Shape, Snapshot

Json = dict[str, Any]

CREATED = "2027-01-15T08:00:00Z"
AT = 1_800_000_000.0
"""The same in seconds."""


_OF_META = ("namespace", "labels", "annotations", "owner", "ownerReferences", "deletionTimestamp")


def meta(name: str, *, namespace: str = "user-ada", owner: Json | None = None, **more: Any) -> Json:
    """Metadata; ``labels`` and ``annotations`` among `more`."""
    return {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": CREATED,
        **({"namespace": namespace} if namespace else {}),
        **({"ownerReferences": [owner]} if owner else {}),
        **more,
    }


def owner(kind: str, name: str) -> Json:
    return {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def container(
    requests: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None, **more: Any
) -> Json:
    resources = {
        **({"requests": dict(requests)} if requests is not None else {}),
        **({"limits": dict(limits)} if limits is not None else {}),
    }
    return {"name": "main", "image": "x", "resources": resources, **more}


def pod(name: str = "work", *containers: Json, status: Json | None = None, **more: Any) -> Json:
    """A pod; fields of its spec and of its metadata by name."""
    of_meta = {key: more.pop(key) for key in _OF_META if key in more}
    return {
        "metadata": meta(name, **of_meta),
        "spec": {"containers": list(containers) or [container({"cpu": "1"})], **more},
        "status": {"phase": "Pending", **(status or {})},
    }


def template(
    *containers: Json, labels: Json | None = None, annotations: Json | None = None, **spec: Any
) -> Json:
    return {
        "metadata": {"labels": labels or {}, "annotations": annotations or {}},
        "spec": {"containers": list(containers) or [container({"cpu": "1"})], **spec},
    }


def job(name: str = "train", *, status: Json | None = None, of: Json | None = None, **more: Any) -> Json:
    """An indexed Job of four pods at once."""
    of_meta = {key: more.pop(key) for key in _OF_META if key in more}
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", **more}
    return {
        "metadata": meta(name, **of_meta),
        "spec": {**spec, "template": of or template()},
        "status": status or {},
    }


def of_job(number: int = 0, name: str = "train", **more: Any) -> Json:
    """A pod of it."""
    return pod(f"{name}-{number}", owner=owner("Job", name), **more)


def condition(kind: str, status: str = "True") -> Json:
    return {"type": kind, "status": status, "lastTransitionTime": CREATED, "reason": "x", "message": ""}


def raw(thing: Any) -> bytes:
    return json.dumps(thing).encode()


def listed(*items: Json, version: str = "9", token: str | None = None) -> bytes:
    return raw(
        {
            "kind": "List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version, **({"continue": token} if token else {})},
            "items": items,
        }
    )


def shape_of(written: Json) -> Shape:
    """The shape of a pod."""
    shape: Shape = Decoder().item("Pod", raw(written))[1].shape
    return shape


def asked(written: Json) -> dict[str, int]:
    """What a pod asks for, without itself."""
    return {name: amount for name, amount in shape_of(written).requests if name != "pods"}


def joined(**kinds: Iterable[Json]) -> Snapshot:
    """A snapshot of objects: ``joined(Pod=[…], Job=[…])``. Each must make sense."""
    decoder = Decoder()
    caches = {}
    for kind, items in kinds.items():
        page = decoder.list(kind, listed(*items))
        assert not page.faults, page.faults
        caches[kind] = page.objects
    return snapshot(caches, {}, {}, {}, AT)
