"""Which work goes where, and before whom: classes of work, and rules that hold in people's namespaces.

Work that asks for GPUs
    is given the GPUs of its class (``kubernetes.priority_classes``), the newest of them first: low work goes
    to old GPUs, which nobody else wants, and high work to new ones.
Work that does not
    stays off nodes with GPUs, so that a GPU never waits for a processor. Work that makes way for all else
    (of a class below 0) may use machines of ours while they are idle, after all others, and is evicted when
    work with a use for the GPUs comes. In the cloud an idle machine goes away instead.
Everybody
    names a class of the spec, and neither a node nor a taint that keeps people off machines.

A mutating policy writes the first two into pods and jobs; a validating one refuses what is still without, and
the rest. Jobs are treated like their pods, as queues decide by the job.
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
