"""Classes of work: which GPUs each is given, and which one is meant where none is named."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from infra.model.kubernetes import PriorityClass
from infra.schema import Spec
from infra.schema import kubernetes as written
from infra.schema.defaults import PRIORITY_CLASSES

GpuClass: TypeAlias = Literal["old", "standard", "new"]

_NEWEST_FIRST: Final[tuple[GpuClass, ...]] = ("new", "standard", "old")


def priority_classes(spec: Spec) -> tuple[PriorityClass, ...]:
    """The spec's classes, or ours where it names none; the lowest first."""
    classes = spec.kubernetes.priority_classes or PRIORITY_CLASSES
    in_order = sorted(classes.items(), key=lambda entry: (entry[1].value, entry[0]))
    default = next((name for name, each in in_order if each.value == 0), None)
    return tuple(
        PriorityClass(
            name=name,
            value=each.value,
            gpu_classes=_gpus(each),
            preempts=each.preempts,
            default=name == default,
            yields=each.value < 0,
        )
        for name, each in in_order
    )


def _gpus(each: written.PriorityClass) -> tuple[GpuClass, ...]:
    newest = _NEWEST_FIRST.index(each.gpu_class or "new")
    oldest = _NEWEST_FIRST.index(each.at_least or "old")
    return _NEWEST_FIRST[newest : oldest + 1]
