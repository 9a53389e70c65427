"""Computes the total resource requests of a pod.

The scheduler's formula (component-helpers ``resource/helpers.go``, KEP-753)::

    max(containers + sidecars, each init phase: that container + the sidecars that began before it) + overhead

Limits are used for missing requests; the API server does this for pods, but not for templates. Pod-level
resources (``spec.resources``) override the sum of the containers. While a pod is being resized, the maximum
of desired, allocated and actual resources counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from infra.autoscaler.observed.decoding import wire
from infra.autoscaler.observed.quantity import nano, up
from infra.autoscaler.observed.snapshot import DEVICES, PODS

_OF_PODS: Final = ("cpu", "memory", "hugepages-")
"""Resources that can be requested at pod level."""

_Amounts: TypeAlias = Mapping[str, int]


class Container(NamedTuple):
    """A container's requests, in billionths."""

    requests: _Amounts
    sidecar: bool = False
    allocated: _Amounts | None = None
    """Amounts allocated by its node; None while it is not on a node."""
    actual: _Amounts | None = None
    """The actual amounts."""


_Of: TypeAlias = Callable[[Container], _Amounts]


def amounts(found: wire.Amounts | None) -> dict[str, int]:
    """Amounts in billionths. Raises ValueError, naming the invalid one."""
    read: dict[str, int] = {}
    for name, text in (found or {}).items():
        try:
            amount = nano(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if amount < 0:
            raise ValueError(f"{name}: {text} is less than nothing")
        read[name] = amount
    return read


def requested(resources: wire.Resources) -> dict[str, int]:
    """Requests, with limits in place of missing ones."""
    return {**amounts(resources.limits), **amounts(resources.requests)}


def total(
    containers: Sequence[Container],
    inits: Sequence[Container],
    *,
    whole: wire.Resources | None = None,
    overhead: wire.Amounts | None = None,
    devices: bool = False,
) -> tuple[tuple[str, int], ...]:
    """(name, amount) by name, rounded up, without zeros and with the pod itself."""
    sums = _sum(containers, inits, lambda each: each.requests)
    if any(each.allocated is not None or each.actual is not None for each in (*containers, *inits)):
        for other in (_allocated, _actual):
            _most(sums, _sum(containers, inits, other))
    if whole is not None:
        _whole(sums, amounts(whole.requests), amounts(whole.limits))
    _add(sums, amounts(overhead))
    found = {name: up(name, amount) for name, amount in sums.items() if amount}
    found[PODS] = 1
    if devices:
        found[DEVICES] = 1
    return tuple(sorted(found.items()))


def _allocated(container: Container) -> _Amounts:
    return container.requests if container.allocated is None else container.allocated


def _actual(container: Container) -> _Amounts:
    return _allocated(container) if container.actual is None else container.actual


def _sum(containers: Iterable[Container], inits: Iterable[Container], of: _Of) -> dict[str, int]:
    running: dict[str, int] = {}
    for each in containers:
        _add(running, of(each))
    sidecars: dict[str, int] = {}
    phases: dict[str, int] = {}
    for each in inits:
        if each.sidecar:
            _add(running, of(each))
            _add(sidecars, of(each))
            _most(phases, sidecars)
        else:
            phase = dict(sidecars)
            _add(phase, of(each))
            _most(phases, phase)
    _most(running, phases)
    return running


def _whole(sums: dict[str, int], asked: _Amounts, limits: _Amounts) -> None:
    for name, amount in limits.items():
        # A limit is used only if neither the pod nor a container has a request; huge pages cannot be
        # overcommitted.
        huge = name.startswith("hugepages-")
        if name.startswith(_OF_PODS) and name not in asked and (huge or name not in sums):
            sums[name] = amount
    sums.update({name: amount for name, amount in asked.items() if name.startswith(_OF_PODS)})


def _add(sums: dict[str, int], more: _Amounts) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + amount


def _most(sums: dict[str, int], other: _Amounts) -> None:
    for name, amount in other.items():
        if amount > sums.get(name, -1):
            sums[name] = amount
