"""What pods of several components have in common: where they run, what they ask for, what they see."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from infra.catalogue.labels import SITE
from infra.render.kubernetes.manifests import Object, of

ROLLING: Final[Object] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
"""How agents are replaced: a few nodes at a time, in a rack of three one by one."""

EVERYWHERE: Final[list[Object]] = [{"operator": "Exists", "effect": "NoSchedule"}]
"""Tolerations of agents on nodes. Gateways keep others off by NoExecute."""


HARDENED: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""The security context of a container that writes to its volumes alone."""

TMP_MOUNT: Final = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - the pod's own
"""Where such a container has the volume ``tmp``."""


def unprivileged(user: int) -> Object:
    """The security context of a pod as the level ``restricted`` wants it."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def daemons(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    spec: Object,
    *,
    selector: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    update: Object = ROLLING,
) -> Object:
    """A DaemonSet.

    Args:
        name: Its name.
        namespace: Where it is.
        labels: Of itself and of its pods.
        spec: Of its pods.
        selector: The labels that its pods are found by, which never change; all of them where none are given.
        annotations: Of its pods.
        update: How a change of it comes to nodes.
    """
    metadata: Object = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return of(
        "apps/v1",
        "DaemonSet",
        name,
        namespace=namespace,
        labels=labels,
        spec={
            "selector": {"matchLabels": selector or labels},
            "updateStrategy": update,
            "template": {"metadata": metadata, "spec": spec},
        },
    )


def matching(terms: Sequence[Object]) -> Object:
    """A selector of nodes that meet all terms."""
    return {"nodeSelectorTerms": [{"matchExpressions": list(terms)}]}


def nodes(terms: Sequence[Object]) -> Object:
    """The affinity to nodes that meet all terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": matching(terms)}}


def at(sites: Collection[str]) -> Object:
    """A term: nodes of these sites, which are told in the order of their names."""
    return {"key": SITE, "operator": "In", "values": sorted(sites)}


def requests(cpu: str, memory: str, *, limit: str = "") -> Object:
    """Resources: what is asked for, and the most memory, if there is a most."""
    return {"requests": {"cpu": cpu, "memory": memory}, **({"limits": {"memory": limit}} if limit else {})}


def value(name: str, text: str) -> Object:
    """A variable of a container."""
    return {"name": name, "value": text}


def field(name: str, path: str) -> Object:
    """A variable with what a field of the pod says: ``spec.nodeName``."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def host(name: str, path: str, kind: str = "DirectoryOrCreate") -> Object:
    """A volume that is a path of the node (Kubernetes, "hostPath", for the kinds)."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}
