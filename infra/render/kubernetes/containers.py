"""The container images that a cluster pulls: of masters, of our manifests, and of charts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from infra.catalogue import addons
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.containers import ContainerImage, parse
from infra.render.kubernetes import AFTER, APPLIED, objects

_LISTS = ("initContainers", "containers")
"""Fields of a pod's spec."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of ``pulled``."""

    images: tuple[ContainerImage, ...]
    """Sorted by name."""
    unknown: tuple[str, ...] = field(default=())
    """Components whose images are not known here, one sentence each."""


def pulled(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Pulled:
    """All images that the spec makes nodes pull, except those of users' pods."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    unknown: list[str] = []
    if not cluster.kubernetes.kubeadm_images:
        unknown.append(
            f"the images of Kubernetes {cluster.kubernetes.version}'s control plane are not in the "
            "catalogue: `kubeadm config images list` prints them, on a machine with that kubeadm"
        )
    for name in cluster.kubernetes.kubeadm_images:
        users[name].add("kubeadm")
    for part in (*APPLIED, *AFTER):
        for documents in objects(part, cluster, outputs).values():
            for name in _in_pods(list(documents)):
                users[name].add(part)
    if cluster.research is not None:
        own = [cluster.research.tools, *(each.image for each in cluster.research.images)]
        for name in filter(None, own):
            users[name].add("research")
    for addon in cluster.kubernetes.addons:
        known = addons.find(addon.name)
        for name in addon.chart.images if addon.chart is not None else known.images if known else ():
            users[name].add(addon.name)
        if addon.chart is not None and not addon.chart.images:
            unknown.append(
                f"{addon.name}: the spec names version {addon.chart.version} of its chart, whose images are "
                "not in the catalogue: `helm template` prints them"
            )
    images = [parse(name, tuple(sorted(each))) for name, each in users.items()]
    return Pulled(tuple(sorted(images, key=lambda each: each.name)), tuple(unknown))


def _in_pods(thing: Any) -> Iterator[str]:
    """Yield the images of all pods and pod templates in an object."""
    if isinstance(thing, list):
        for each in thing:
            yield from _in_pods(each)
    elif isinstance(thing, dict):
        for key, value in thing.items():
            if key in _LISTS and isinstance(value, list):
                yield from (each["image"] for each in value if isinstance(each, dict) and "image" in each)
            else:
                yield from _in_pods(value)
