"""Branches of NVIDIA's Linux driver: their support periods, and the newest CUDA version each supports.

Source: https://docs.nvidia.com/datacenter/tesla/drivers/ (life cycle) and the CUDA toolkit's release notes
(driver of each toolkit). Containers include their CUDA; within a major version they run on any driver of
that major version, and ``cuda`` here is the newest that a driver was built for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from infra.catalogue.gpus import Gpu
from infra.catalogue.tables import table

OPEN_MODULES_SINCE: Final = 515
"""The first branch with open kernel modules (NVIDIA's driver documentation)."""

Lifetime: TypeAlias = Literal["long-term", "production", "new-feature", "legacy"]
"""Three years, one year, until the next branch; or old, and kept for GPUs that no newer branch supports."""


@dataclass(frozen=True, slots=True, order=True)
class Driver:
    """A driver branch."""

    branch: int
    """``570``."""
    lifetime: Lifetime
    cuda: str
    """The newest supported CUDA version: ``12.8``."""
    ends: str | None
    """The last month of updates, ``2026-02``; None if NVIDIA did not announce it."""
    last_ubuntu: str | None = None
    """The last Ubuntu release that it is built for, including its later kernels; None while it is updated."""

    def runs_cuda(self, version: str) -> bool:
        """Whether a CUDA version (``12.8``) runs on it.

        Any older version does; since CUDA 11 also newer ones of the same major version
        (https://docs.nvidia.com/deploy/cuda-compatibility/, minor version compatibility).
        """
        wanted, own = _numbers(version), _numbers(self.cuda)
        return wanted <= own or (wanted[0] == own[0] and own[0] >= 11)


@cache
def find(branch: int) -> Driver | None:
    """The branch with this number, or None."""
    row = table("drivers").get(str(branch))
    return (
        Driver(branch, row["lifetime"], row["cuda"], row.get("ends"), row.get("last_ubuntu")) if row else None
    )


@cache
def names() -> Sequence[int]:
    """Every branch, oldest first."""
    return tuple(sorted(map(int, table("drivers"))))


def newest_for(gpus: Iterable[Gpu]) -> Driver | None:
    """The branch to install for a set of GPUs that one image must support; None if no branch supports all.

    A branch with a longer support period is preferred to a newer one with a shorter one: long-term, then
    production.
    """
    wanted = tuple(gpus)
    fit = [
        driver for branch in names() if (driver := find(branch)) and all(gpu.runs(branch) for gpu in wanted)
    ]
    ranks: dict[Lifetime, int] = {"long-term": 3, "production": 2, "new-feature": 1, "legacy": 0}
    return max(fit, key=lambda driver: (ranks[driver.lifetime], driver.branch), default=None)


def suggest(branch: int) -> int:
    """The known branch closest to an unknown one."""
    return min(names(), key=lambda known: (abs(known - branch), -known))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
