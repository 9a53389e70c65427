"""NVIDIA GPUs, at physical sites and in EC2 instances, and the driver branches that support them.

Sources are in ``sources.md``. Memory of GPUs in EC2 is as stated by AWS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeAlias, get_args

from infra.catalogue.tables import table
from infra.nearest import nearest

Architecture: TypeAlias = Literal[
    "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"
]
ARCHITECTURES: Final = get_args(Architecture)
"""NVIDIA's architectures, oldest first."""
GpuClass: TypeAlias = Literal["old", "standard", "new"]

_CLASSES: Final[Mapping[str, GpuClass]] = {
    "kepler": "old",
    "maxwell": "old",
    "pascal": "old",
    "volta": "standard",
    "turing": "standard",
    "ampere": "standard",
    "ada": "standard",
    "hopper": "new",
    "blackwell": "new",
}
"""The classes that priority classes select by: without tensor cores, with them, and the latest ones."""
_NEW: Final = frozenset({"a100-40gb", "a100-80gb", "h100", "h200", "l40s"})
"""GPUs of the class ``new`` whose architecture is in another class."""
_LAST_CUDA: Final[Mapping[str, str]] = {
    "kepler": "11.8",
    "maxwell": "12.9",
    "pascal": "12.9",
    "volta": "12.9",
}
"""CUDA 12.0 dropped Kepler, CUDA 13.0 Maxwell, Pascal and Volta (release notes of both)."""
_OPEN: Final = frozenset({"turing", "ampere", "ada", "hopper", "blackwell"})
"""Architectures that NVIDIA's open kernel modules support (those with a GPU System Processor)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU model. Boards with two GPUs (K80, M60) count as two GPUs."""

    slug: str
    """The name in specs: ``titan-x-pascal``, ``a100-40gb``."""
    name: str
    """NVIDIA's name."""
    aliases: tuple[str, ...]
    architecture: Architecture
    compute_capability: str
    """``6.1``."""
    memory_mib: int
    gpu_class: GpuClass
    """The class that batch work may request: ``old`` (before tensor cores), ``standard``, ``new``."""
    first_driver: int
    """The first driver branch on Linux that supports it."""
    last_driver: int | None
    """The last branch that supports it; None while NVIDIA still supports it."""
    mig: bool
    """Whether it supports MIG (Multi-Instance GPU)."""
    mig_profiles: Mapping[str, int]
    """MIG profiles without media extensions → how many instances of one profile a GPU has."""

    @property
    def open_kernel_modules(self) -> bool:
        """Whether NVIDIA's open kernel modules support it: Turing and newer."""
        return self.architecture in _OPEN

    @property
    def proprietary_kernel_modules(self) -> bool:
        """Whether the proprietary modules support it: all but Blackwell."""
        return self.architecture != "blackwell"

    @property
    def last_cuda(self) -> str | None:
        """The last CUDA toolkit that compiles code for it, ``12.9``; None if the newest does."""
        if self.compute_capability == "3.0":
            return "10.2"
        return _LAST_CUDA.get(self.architecture)

    def runs(self, driver: int) -> bool:
        """Whether a driver branch supports the GPU."""
        return self.first_driver <= driver and (self.last_driver is None or driver <= self.last_driver)


@cache
def find(slug: str) -> Gpu | None:
    """The GPU with this slug, alias or product name (``NVIDIA TITAN X (Pascal)``), or None."""
    name = _by_word().get(_word(slug))
    if name is None:
        return None
    row: Mapping[str, Any] = table("gpus")[name]
    architecture: Architecture = row["architecture"]
    return Gpu(
        slug=name,
        name=row["name"],
        aliases=tuple(row.get("aliases", ())),
        architecture=architecture,
        compute_capability=row["compute_capability"],
        memory_mib=row["memory_mib"],
        gpu_class="new" if name in _NEW else _CLASSES[architecture],
        first_driver=row["first_driver"],
        last_driver=row.get("last_driver"),
        mig=row.get("mig", False),
        mig_profiles=row.get("mig_profiles", {}),
    )


@cache
def names() -> Sequence[str]:
    """Every slug, sorted."""
    return tuple(sorted(table("gpus")))


def suggest(slug: str) -> str:
    """The slug that was probably meant, or the empty string."""
    words = _by_word()
    near = nearest(_word(slug), words)
    return words[near] if near else ""


def sizes(slug: str) -> Sequence[str]:
    """The slugs for a name that GPUs of several memory sizes have: ``a100`` → ``a100-40gb``, ``a100-80gb``.
    Empty for a name of one GPU."""
    sized = re.compile(re.escape(_word(slug)) + r"-\d+gb")
    found = {gpu: word for word, gpu in _by_word().items() if sized.fullmatch(word)}
    return sorted(found.values()) if len(found) > 1 else ()


def written(gpu: Gpu) -> Sequence[str]:
    """How a spec may name it, the usual name first: ``v100-16gb``, as a ``v100`` may also have 32 GB."""
    return [word for word in (gpu.slug, *gpu.aliases) if not sizes(word)]


@cache
def _by_word() -> Mapping[str, str]:
    """Every accepted name of a GPU → its slug."""
    words: dict[str, str] = {}
    for slug, row in table("gpus").items():
        for word in (slug, row["name"], *row.get("aliases", ())):
            words.setdefault(_word(word), slug)
    return words


def _word(text: str) -> str:
    """``NVIDIA TITAN X (Pascal)`` → ``titan-x-pascal``, ``Tesla V100`` → ``v100``."""
    word = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return word.removeprefix("nvidia-").removeprefix("tesla-")
