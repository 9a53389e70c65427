"""EC2 instance types and their hardware.

Source: ``ec2 describe-instance-types``
(https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTypeInfo.html) in ``instances.json``, one
type per line, and types that AWS no longer lists but labs still use in ``retired.json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from infra.catalogue.tables import table

_INTERCONNECTS: Final = {
    "p3": "nvlink",
    "p3dn": "nvlink",
    "p4d": "nvswitch",
    "p4de": "nvswitch",
    "p5": "nvswitch",
    "p5e": "nvswitch",
    "p5en": "nvswitch",
    "p6-b200": "nvswitch",
    "p6-b300": "nvswitch",
}
"""The connection between the GPUs of a family, if there are several (EC2 User Guide, accelerated
instances)."""

BEFORE_2023: Final = frozenset({
    "a1", "c1", "c3", "c4", "c5", "c5a", "c5ad", "c5d", "c5n", "c6a", "c6g", "c6gd", "c6gn", "c6i",
    "c6id", "c6in", "c7g", "cc2", "cr1", "d2", "d3", "d3en", "dl1", "f1", "g2", "g3", "g3s", "g4ad",
    "g4dn", "g5", "g5g", "h1", "hpc6a", "hpc6id", "hs1", "i2", "i3", "i3en", "i4i", "im4gn", "inf1",
    "is4gen", "m1", "m2", "m3", "m4", "m5", "m5a", "m5ad", "m5d", "m5dn", "m5n", "m5zn", "m6a", "m6g",
    "m6gd", "m6i", "m6id", "m6idn", "m6in", "mac1", "mac2", "p2", "p3", "p3dn", "p4d", "p4de", "r3",
    "r4", "r5", "r5a", "r5ad", "r5b", "r5d", "r5dn", "r5n", "r6a", "r6g", "r6gd", "r6i", "r6id",
    "r6idn", "r6in", "t1", "t2", "t3", "t3a", "t4g", "trn1", "u-12tb1", "u-18tb1", "u-24tb1", "u-3tb1",
    "u-6tb1", "u-9tb1", "vt1", "x1", "x1e", "x2gd", "x2idn", "x2iedn", "x2iezn", "z1d",
})  # fmt: skip
"""The families that AWS had released by the end of 2022: the only ones that launch configurations support
(https://docs.aws.amazon.com/autoscaling/ec2/userguide/launch-configurations.html)."""

_BANDWIDTH = re.compile(r"(?:(\d+)x )?(\d+(?:\.\d+)?) Gigabit")
_OUTDATED: Final = frozenset({"k520", "k80", "m60"})
"""GPUs that are not suggested for a misspelled name."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPUs of an instance type, all of one model."""

    model: str
    """A slug of `infra.catalogue.gpus`: ``v100``, ``a100-40gb``, ``t4``."""
    count: int
    """How many the operating system sees; a fraction of a GPU counts as one."""
    memory_mib: int
    """Of one GPU."""
    share: float = 1.0
    """The share of a physical GPU: below 1 for g6f and gr6f, which need NVIDIA's vGPU driver."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An EC2 instance type."""

    name: str
    vcpus: int
    memory_mib: int
    architectures: tuple[str, ...]
    """``x86_64``, ``arm64``; on Macs ``x86_64_mac``, ``arm64_mac``."""
    gpus: Gpu | None
    """NVIDIA GPUs. Other accelerators (Inferentia, Trainium, FPGAs) are not distinguished."""
    network: str
    """AWS's description: ``Up to 10 Gigabit``, ``4x 100 Gigabit``, ``Moderate``."""
    network_gbps: float
    """The maximum over all network cards, in Gbit/s; 0 if AWS does not state it."""
    network_cards: int
    efa_interfaces: int
    """The maximum number of Elastic Fabric Adapters; 0 if it supports none."""
    local_disk_gb: int
    """Instance store, all disks together, in GB as AWS counts (10^9 bytes)."""
    bare_metal: bool
    nitro: bool
    """Built on Nitro: EBS volumes show as NVMe devices, the serial console works."""
    spot: bool
    """Whether Spot Instances are available."""
    retired: bool
    """Whether AWS no longer lists it; an account may still run some."""

    @property
    def efa(self) -> bool:
        return self.efa_interfaces > 0

    @property
    def family(self) -> str:
        """``p3`` of ``p3.2xlarge``."""
        return self.name.partition(".")[0]

    @property
    def size(self) -> str:
        """``2xlarge`` of ``p3.2xlarge``."""
        return self.name.partition(".")[2]

    @property
    def interconnect(self) -> str | None:
        """The connection between its GPUs: ``nvlink``, ``nvswitch`` (needs NVIDIA Fabric Manager), or
        None."""
        return _INTERCONNECTS.get(self.family) if self.gpus and self.gpus.count > 1 else None


@cache
def find(name: str) -> InstanceType | None:
    """The type with this name; None if it is in neither AWS's list nor the retired types."""
    listed = _listed().get(name)
    if listed is not None:
        return _type(name, listed, retired=False)
    row = _retired().get(name)
    return _type(name, row, retired=True) if row is not None else None


@cache
def names() -> Sequence[str]:
    """Every type, including retired ones, sorted."""
    return tuple(sorted({*_listed(), *_retired()}))


def suggest(name: str) -> str:
    """The type that was probably meant by an unknown name; the empty string if none is close.

    ``p9.xlarge`` gives ``p3.2xlarge``; see `infra.catalogue.likeness`. Deterministic.
    """
    from infra.catalogue.likeness import likely_type  # only needed for errors

    return likely_type(name, names(), unlikely=_outdated)


def bandwidth_gbps(network: str) -> float | None:
    """Gbit/s from AWS's description (``Up to 12.5 Gigabit``, ``4x 100 Gigabit``); None for ``High`` and the
    like."""
    found = _BANDWIDTH.search(network)
    return int(found[1] or 1) * float(found[2]) if found else None


def _outdated(name: str) -> bool:
    found = find(name)
    return bool(found and found.gpus and found.gpus.model in _OUTDATED)


def _listed() -> Mapping[str, Any]:
    types: Mapping[str, Any] = table("instances")
    return types


def _retired() -> Mapping[str, Any]:
    types: Mapping[str, Any] = table("retired")["types"]
    return types


def _type(name: str, row: Mapping[str, Any], *, retired: bool) -> InstanceType:
    """A row of a table. Values that most types share are omitted there."""
    network = row["network"]
    return InstanceType(
        name=name,
        vcpus=row["vcpus"],
        memory_mib=row["memory_mib"],
        architectures=tuple(row.get("architectures", ("x86_64",))),
        gpus=Gpu(*row["gpus"]) if "gpus" in row else None,
        network=network,
        network_gbps=row.get("gbps") or bandwidth_gbps(network) or 0.0,
        network_cards=row.get("network_cards", 1),
        efa_interfaces=row.get("efa", 0),
        local_disk_gb=row.get("disk_gb", 0),
        bare_metal=row.get("bare_metal", False),
        nitro=row.get("nitro", True),
        spot=row.get("spot", True),
        retired=retired,
    )
