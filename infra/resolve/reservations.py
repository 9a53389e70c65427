"""The resources that a node reserves, by its size, and what remains for pods.

The formula is also implemented on the nodes (``cookbooks/kubernetes/libraries/reservations.rb``): for
kubelet and containerd, that of managed clusters (CPU in the steps of GKE, AKS and EKS, memory as EKS); for
the system, a share of the machine. A test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import ceil
from typing import Final

from infra.catalogue import efa
from infra.model.kubernetes import Reserved, Share, of_adapters

_CORE_SHARES: Final = (60, 10, 5, 5)
"""mCPU of the first four cores."""
_FURTHER_CORES: Final = 2.5
_KUBE_MIB: Final = 255
_POD_MIB: Final = 11
_SYSTEM_MIB: Final = (512, 2048)

_EVICTION_MIB: Final = 500
_EVICTION_DISK: Final = 10
EVICTION: Final[Mapping[str, str]] = {
    "memory.available": f"{_EVICTION_MIB}Mi",
    "nodefs.available": f"{_EVICTION_DISK}%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": f"{_EVICTION_DISK}%",
    "imagefs.inodesFree": "5%",
}
"""The kubelet's eviction thresholds. Pods cannot use these amounts either."""

KERNEL_PERCENT: Final = 7.5
"""Percent of a machine's nominal memory used by hypervisor, firmware and kernel: Karpenter's default
(``VM_MEMORY_OVERHEAD_PERCENT``, https://karpenter.sh/docs/reference/settings/)."""


@cache
def reserved(cpus: int, memory_mib: int, pods: int) -> Reserved:
    """The resources that a machine of this size reserves."""
    millicores = sum(_CORE_SHARES[:cpus]) + max(cpus - len(_CORE_SHARES), 0) * _FURTHER_CORES
    least, most = _SYSTEM_MIB
    return Reserved(
        kube=Share(ceil(millicores), _KUBE_MIB + _POD_MIB * pods),
        system=Share(min(max(100 + cpus * 5, 100), 500), min(max(memory_mib // 64, least), most)),
    )


@cache
def allocatable(
    cpus: int, memory_mib: int, pods: int, disk_gib: int | None = None, gpus: int = 0, adapters: int = 0
) -> Mapping[str, str]:
    """What an empty node offers to pods, in Kubernetes quantities; never more than the real node.

    ``memory_mib`` is the nominal size, of which the kernel sees less. ``disk_gib``: size of the root disk.
    ``adapters``: number of EFA interfaces, for which huge pages are taken from the memory.
    """
    kept = reserved(cpus, memory_mib, pods)
    seen = int(memory_mib * (100 - KERNEL_PERCENT) / 100)
    kept_mib = kept.kube.mib + kept.system.mib + (efa.HUGE_PAGES_MIB if adapters else 0)
    left = {
        "cpu": f"{max(cpus * 1000 - kept.kube.millicores - kept.system.millicores, 0)}m",
        "memory": f"{max(seen - kept_mib - _EVICTION_MIB, 0)}Mi",
        "pods": str(pods),
    }
    if disk_gib is not None:
        left["ephemeral-storage"] = f"{disk_gib * (100 - _EVICTION_DISK) // 100}Gi"
    if gpus:
        left["nvidia.com/gpu"] = str(gpus)
    return {**left, **of_adapters(adapters)}
