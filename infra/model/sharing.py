"""How pods share GPUs: in turns (time slices), or each with an instance of its own (MIG).

A node says by its labels what its GPUs offer; NVIDIA's components go by two of their own. With either way of
sharing a pod still asks for ``nvidia.com/gpu``: all GPUs of a node are shared alike.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from infra.catalogue import gpus
from infra.catalogue.labels import PLUGIN, WHOLE
from infra.model.places import Gpus

MIG_LABEL: Final = "nvidia.com/mig.config"
"""How a node's GPUs are to be split, in the words of NVIDIA's MIG manager: ``all-1g.10gb``."""


def shared(node_gpus: Gpus, time_slices: int, mig: str | None) -> Gpus:
    """A machine's GPUs, and how many of them pods see."""
    gpu = gpus.find(node_gpus.model)
    instances = gpu.mig_profiles.get(mig, 1) if gpu is not None and mig is not None else 1
    return replace(
        node_gpus, time_slices=time_slices, mig=mig, offered=node_gpus.count * instances * time_slices
    )


def configuration(node_gpus: Gpus) -> str:
    """The device plugin's configuration for them: ``whole``, ``slices-4``, ``mig-1g-10gb-slices-4``."""
    parts = (
        f"mig-{node_gpus.mig.replace('.', '-')}" if node_gpus.mig else "",
        f"slices-{node_gpus.time_slices}" if node_gpus.time_slices > 1 else "",
    )
    return "-".join(filter(None, parts)) or WHOLE


def sharing_labels(node_gpus: Gpus | None) -> dict[str, str]:
    """What a node of shared GPUs says; nothing where a GPU is one pod's."""
    if node_gpus is None:
        return {}
    named = configuration(node_gpus)
    return {
        **({PLUGIN: named} if named != WHOLE else {}),
        **({MIG_LABEL: f"all-{node_gpus.mig}"} if node_gpus.mig else {}),
    }
