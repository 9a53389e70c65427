"""Scheduling policies: priority classes, and rules for pods in users' namespaces.

Work with GPUs
    gets the GPUs that its class allows (``kubernetes.priority_classes``), preferably the newest: low classes
    use old GPUs, which others do not want, and high ones new GPUs.
Work without GPUs
    stays off nodes with GPUs, so that a GPU is never idle for lack of CPU. Work that is preempted by all else
    (of a class below 0) may use idle physical machines with GPUs, after all others, and is evicted when work
    for the GPUs arrives. In the cloud an idle machine is terminated instead.
All work
    names a class in the spec; it may not name a node, nor tolerate the taints that keep users off machines.

A mutating policy sets the first two on pods and jobs; a validating one refuses objects without them, and
those that violate the third. Jobs are treated like their pods, as queues decide by the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.kubernetes import PriorityClass
from infra.render.kubernetes.manifests import (
    Documents,
    Object,
    filled,
    mutating_api,
    of,
)

RESOURCES: Final = "nvidia.com/"
"""The prefix of resources of GPUs and their fractions."""
GPU_TAINT: Final = "nvidia.com/gpu"
"""The conventional taint of GPU nodes (NVIDIA's charts tolerate it too)."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Priority classes, mutating policies and validating policies."""
    classes = cluster.kubernetes.priority_classes
    values = {"default": default_class(classes), "gpus_of_classes": gpus_of_classes(classes)}
    names = ", ".join(each.name for each in classes)
    return {
        "classes.yaml": [_priority_class(each) for each in classes],
        "placement.yaml": filled(
            "scheduling/placement",
            **values,
            api=mutating_api(cluster.kubernetes.version),
            yields=[each.name for each in classes if each.yields],
            apart=has_room_without_gpus(cluster),
        ),
        "limits.yaml": filled(
            "scheduling/limits", **values, no_class=f"you may only use the priority classes {names}"
        ),
    }


def default_class(classes: Sequence[PriorityClass]) -> str:
    """The default class of work; empty if there is none."""
    return next((each.name for each in classes if each.default), "")


def gpus_of_classes(classes: Sequence[PriorityClass]) -> dict[str, list[str]]:
    """Class → its GPU models, newest first."""
    return {each.name: list(each.gpu_classes) for each in classes}


def has_room_without_gpus(cluster: Cluster) -> bool:
    """Whether there are workers without GPUs. If there are none, work without GPUs may run anywhere."""
    racks = (node for site in cluster.sites for node in site.nodes)
    pools = any(pool.gpus is None and any(group.max for group in pool.groups) for pool in cluster.pools)
    return pools or any(node.gpus is None and "worker" in node.roles for node in racks)


def _priority_class(each: PriorityClass) -> Object:
    gpus = "any GPUs" if len(each.gpu_classes) == 3 else f"{' and '.join(each.gpu_classes)} GPUs"
    return of(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        each.name,
        value=each.value,
        globalDefault=each.default,
        preemptionPolicy="PreemptLowerPriority" if each.preempts else "Never",
        description=f"Work that is given {gpus}." + (" Makes way for all else." if each.yields else ""),
    )
