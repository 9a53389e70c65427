"""What an empty node has, in Kubernetes quantities."""

from __future__ import annotations

from infra.catalogue import efa


def capacity(vcpus: int, memory_mib: int, disk_gib: int, gpus: int, adapters: int) -> dict[str, str]:
    """``disk_gib``: of the root disk. ``gpus``: as many as it offers. ``adapters``: of EFA."""
    found = {"cpu": str(vcpus), "memory": f"{memory_mib}Mi", "ephemeral-storage": f"{disk_gib}Gi"}
    return {**found, **({"nvidia.com/gpu": str(gpus)} if gpus else {}), **of_adapters(adapters)}


def of_adapters(count: int) -> dict[str, str]:
    """What a node with adapters of EFA offers besides; nothing without them."""
    if not count:
        return {}
    return {efa.RESOURCE: str(count), efa.HUGE_PAGES_RESOURCE: f"{efa.HUGE_PAGES_MIB}Mi"}
