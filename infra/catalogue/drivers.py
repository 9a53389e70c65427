"""Branches of NVIDIA's Linux driver: how long each lives, and the newest CUDA it runs.

Source: https://docs.nvidia.com/datacenter/tesla/drivers/ (life cycle) and the CUDA toolkit's release notes
(driver of each toolkit). Containers bring their CUDA; within a major version they run on any driver of that
major version, and ``cuda`` here is the newest that a driver was made for.
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
"""Three years, one year, until the next branch; or old, and kept for GPUs that no newer branch knows."""


@dataclass(frozen=True, slots=True, order=True)
class Driver:
    """A driver branch."""

    branch: int
    """``570``."""
    lifetime: Lifetime
    cuda: str
    """The newest CUDA version it runs: ``12.8``."""
    ends: str | None
    """The month after which NVIDIA does not update it, ``2026-02``; None where it did not say."""
    last_ubuntu: str | None = None
    """The last Ubuntu release that it is built for, its later kernels too; None while it is updated."""

    def runs_cuda(self, version: str) -> bool:
        """Whether a CUDA version (``12.8``) runs on it.

        Anything older does; since CUDA 11 also newer ones of the same major version
        (https://docs.nvidia.com/deploy/cuda-compatibility/, minor version compatibility).
        """
        wanted, own = _numbers(version), _numbers(self.cuda)
        return wanted <= own or (wanted[0] == own[0] and own[0] >= 11)


@cache
def find(branch: int) -> Driver | None:
    """The branch of that number, or None."""
    row = table("drivers").get(str(branch))
    return (
        Driver(branch, row["lifetime"], row["cuda"], row.get("ends"), row.get("last_ubuntu")) if row else None
    )


@cache
def names() -> Sequence[int]:
    """Every branch, oldest first."""
    return tuple(sorted(map(int, table("drivers"))))


def newest_for(gpus: Iterable[Gpu]) -> Driver | None:
    """The branch to install for a set of GPUs that one image must drive, or None where no branch runs all.

    A branch with a long life is preferred to a newer one with a short one: long-term, then production.
    """
    wanted = tuple(gpus)
    fit = [
        driver for branch in names() if (driver := find(branch)) and all(gpu.runs(branch) for gpu in wanted)
    ]
    ranks: dict[Lifetime, int] = {"long-term": 3, "production": 2, "new-feature": 1, "legacy": 0}
    return max(fit, key=lambda driver: (ranks[driver.lifetime], driver.branch), default=None)


def suggest(branch: int) -> int:
    """The known branch nearest to an unknown one."""
    return min(names(), key=lambda known: (abs(known - branch), -known))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
