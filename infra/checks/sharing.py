"""GPUs that several pods share (GPU)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from infra.catalogue import gpus
from infra.catalogue.gpus import Gpu
from infra.checks.facts import Facts
from infra.checks.phrases import listed, meant_one_of
from infra.checks.registry import Finding, check
from infra.errors import Level, Path


class _Shared(NamedTuple):
    """GPUs of a pool or of a physical node, and how they are shared."""

    path: Path
    """The path of ``gpus``."""
    gpu: Gpu | None
    time_slices: int
    mig: str | None


def _shared(facts: Facts) -> Iterator[_Shared]:
    for node in facts.nodes:
        if node.node.gpus is not None:
            shared = node.node.gpus
            yield _Shared(node.at("gpus"), node.gpu, shared.time_slices, shared.mig)
    for one in facts.machines:
        kind = one.with_gpus[0].type if one.with_gpus else None
        gpu = gpus.find(kind.gpus.model) if kind is not None and kind.gpus is not None else None
        yield _Shared(one.at("gpus"), gpu, one.pool.gpus.time_slices, one.pool.gpus.mig)


@check("GPU001", Level.ERROR, "GPUs that do not support Multi-Instance GPU are to be split.")
def can_be_split(facts: Facts) -> Iterator[Finding]:
    for each in _shared(facts):
        if each.mig is not None and each.gpu is not None and not each.gpu.mig:
            message = f"{each.gpu.name} has no instances to be split into"
            yield Finding((*each.path, "mig"), message, "share it by turns: 'time_slices: 4'")


@check("GPU002", Level.ERROR, "A size of instances that the GPUs do not have.")
def known_size(facts: Facts) -> Iterator[Finding]:
    for each in _shared(facts):
        gpu = each.gpu
        if each.mig is not None and gpu is not None and gpu.mig and each.mig not in gpu.mig_profiles:
            sizes = gpu.mig_profiles
            hint = meant_one_of(each.mig, sizes) if sizes else "share it by turns: 'time_slices: 4'"
            message = f"{gpu.name} is not split into {each.mig}"
            message += f", but into {listed(sizes)}" if sizes else ": its sizes are not known here"
            yield Finding((*each.path, "mig"), message, hint)


@check("GPU003", Level.WARNING, "GPUs are shared where there are none.")
def nothing_to_share(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        shared = one.pool.gpus
        if one.types and not one.with_gpus and (shared.mig is not None or shared.time_slices > 1):
            message = f"{one.types[0].type.name} has no GPU to share"
            yield Finding(one.at("gpus"), message, "take it out")
