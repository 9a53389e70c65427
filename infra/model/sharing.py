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


def shared(cards: Gpus, time_slices: int, mig: str | None) -> Gpus:
    """A machine's GPUs, and how many of them pods see."""
    card = gpus.find(cards.model)
    instances = card.mig_profiles.get(mig, 1) if card is not None and mig is not None else 1
    return replace(cards, time_slices=time_slices, mig=mig, offered=cards.count * instances * time_slices)


def configuration(cards: Gpus) -> str:
    """The device plugin's configuration for them: ``whole``, ``slices-4``, ``mig-1g-10gb-slices-4``."""
    parts = (
        f"mig-{cards.mig.replace('.', '-')}" if cards.mig else "",
        f"slices-{cards.time_slices}" if cards.time_slices > 1 else "",
    )
    return "-".join(filter(None, parts)) or WHOLE


def sharing_labels(cards: Gpus | None) -> dict[str, str]:
    """What a node of shared GPUs says; nothing where a GPU is one pod's."""
    if cards is None:
        return {}
    named = configuration(cards)
    return {
        **({PLUGIN: named} if named != WHOLE else {}),
        **({MIG_LABEL: f"all-{cards.mig}"} if cards.mig else {}),
    }
