"""How pods share GPUs: by time slicing, or by partitioning (MIG).

A node's labels describe what its GPUs offer; NVIDIA's components use two of their own. In both cases a pod
still requests ``nvidia.com/gpu``: all GPUs of a node are shared alike.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from infra.catalogue import gpus
from infra.catalogue.labels import PLUGIN, WHOLE
from infra.model.places import Gpus

MIG_LABEL: Final = "nvidia.com/mig.config"
"""The label with the partitioning of a node's GPUs, in the format of NVIDIA's MIG manager:
``all-1g.10gb``."""


def shared(node_gpus: Gpus, time_slices: int, mig: str | None) -> Gpus:
    """A machine's GPUs, with the number that pods see."""
    gpu = gpus.find(node_gpus.model)
    instances = gpu.mig_profiles.get(mig, 1) if gpu is not None and mig is not None else 1
    return replace(
        node_gpus, time_slices=time_slices, mig=mig, offered=node_gpus.count * instances * time_slices
    )


def configuration(node_gpus: Gpus) -> str:
    """The name of the device plugin's configuration: ``whole``, ``slices-4``, ``mig-1g-10gb-slices-4``."""
    parts = (
        f"mig-{node_gpus.mig.replace('.', '-')}" if node_gpus.mig else "",
        f"slices-{node_gpus.time_slices}" if node_gpus.time_slices > 1 else "",
    )
    return "-".join(filter(None, parts)) or WHOLE


def sharing_labels(node_gpus: Gpus | None) -> dict[str, str]:
    """The labels of a node with shared GPUs; empty if GPUs are not shared."""
    if node_gpus is None:
        return {}
    named = configuration(node_gpus)
    return {
        **({PLUGIN: named} if named != WHOLE else {}),
        **({MIG_LABEL: f"all-{node_gpus.mig}"} if node_gpus.mig else {}),
    }
