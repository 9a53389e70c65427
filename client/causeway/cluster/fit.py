"""Which machines can run a worker, and what it gets of them where its job does not say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from causeway.cluster.offer import Fabric, GpuOffer, Machine, Offer
from causeway.cluster.prices import hourly
from causeway.errors import InputError, Problem
from causeway.job import Gpus, Job
from causeway.units import format_size
from causeway.workers import Workers

EFA = "efa"
"""The interconnect that is adapters of the network."""
_SHARE = 0.9
"""Of what pods get of a machine: agents of the cluster run beside."""
_HUGE_PAGE = 2
"""MiB."""
_CPUS, _MEMORY = 2.0, 8 << 30
"""Of a worker without GPUs."""


@dataclass(frozen=True)
class Fit:
    """A role on the machines of the cluster."""

    workers: Workers
    machines: Sequence[Machine]
    """Those that can run one worker at least, the cheapest first."""
    cpus: float
    memory: int
    """Bytes."""
    fabric: Fabric | None = None
    """What one worker gets of a machine's Elastic Fabric Adapters, if it asks for `efa`."""


def fit(job: Job, workers: Workers, offer: Offer) -> Fit:
    """Where the workers of a role can run. InputError that names the field which rules all machines out."""
    machines = list(offer.machines)
    gpus = workers.gpus
    for field, keep, what in _demands(job, gpus, offer):
        left = [machine for machine in machines if keep(machine)]
        if not left:
            raise InputError([Problem("job", field, what, _hint(machines, field))])
        machines = left
    cpus, memory = workers.cpus, workers.memory
    if gpus.count == 0:
        cpus, memory = cpus or _CPUS, memory or _MEMORY
    else:
        cpus = cpus or min(_cpu_share(machine, gpus.count) for machine in machines)
        memory = memory or min(_memory_share(machine, gpus.count) for machine in machines)
    left = [each for each in machines if each.cpu_milli >= cpus * 1000 and each.memory_mib << 20 >= memory]
    if not left:
        most = max(machines, key=lambda machine: (machine.memory_mib, machine.cpu_milli))
        what = (
            f"{cpus:g} processors and {format_size(memory)} are more than a machine has that fits otherwise"
        )
        hint = f"at most {most.cpu_milli // 1000} and {format_size(most.memory_mib << 20)}"
        raise InputError([Problem("job", "memory", what, hint)])
    by_price = sorted(left, key=lambda each: _price(each, gpus.count, cpus))
    fabric = None
    if gpus.count and gpus.interconnect == EFA:
        shares = [_fabric_share(machine, gpus.count) for machine in left]
        fabric = Fabric(min(each.adapters for each in shares), min(each.huge_pages_mib for each in shares))
    return Fit(workers, by_price, cpus, memory, fabric)


_Demand = tuple[str, Callable[[Machine], bool], str]
"""A field, what a machine must be for it, and what is wrong if none is."""


def _demands(job: Job, gpus: Gpus, offer: Offer) -> Iterator[_Demand]:
    """In the order in which they are looked at."""
    if job.where.sites:
        yield "where.sites", _at(job.where.sites), f"no machine is at {', '.join(job.where.sites)}"
    for name, wanted in job.mounts.items():
        if wanted and name in offer.mounts:
            yield f"mounts.{name}", _at(offer.mounts[name].sites), f"no machine there has {name}"
    if not job.where.spot:
        yield "where.spot", lambda each: not each.is_spot, "only spot instances are there"
    if gpus.count == 0:
        return
    yield "gpus", _with(lambda _: True), "the cluster has no machine with GPUs there"
    priority = job.priority or offer.default_priority
    if priority is not None:
        classes = offer.priorities.get(priority, ())
        what = (
            f"work of priority {priority} is given {' and '.join(classes) or 'no'} GPUs, and none are there"
        )
        yield "priority", _with(lambda has: has.gpu_class in classes), what
    if (model := gpus.model) is not None:
        yield "gpus.model", _with(lambda has: has.model == model), f"{model} is not there"
    if (wanted_class := gpus.class_) is not None:
        what = f"no {wanted_class} GPUs are there"
        yield "gpus.class", _with(lambda has: has.gpu_class == wanted_class), what
    if (memory := gpus.memory) is not None:
        what = f"no GPU there has {format_size(memory)}"
        yield "gpus.memory", _with(lambda has: has.memory_mib << 20 >= memory), what
    if (interconnect := gpus.interconnect) is not None:
        what = f"no machine there has {interconnect}"
        yield "gpus.interconnect", _with(lambda has: has.interconnect == interconnect), what
        if interconnect == EFA:
            what = "pods get no adapters there: the cluster is older than this program"
            yield "gpus.interconnect", lambda each: each.fabric is not None, what
    yield "gpus.count", _with(lambda has: has.count >= gpus.count), f"no machine there has {gpus.count} GPUs"


def _at(sites: Sequence[str]) -> Callable[[Machine], bool]:
    return lambda machine: machine.site in sites


def _with(holds: Callable[[GpuOffer], bool]) -> Callable[[Machine], bool]:
    return lambda machine: machine.gpus is not None and holds(machine.gpus)


def _hint(machines: Sequence[Machine], field: str) -> str:
    """What there is, of what the demands before this one left."""
    offered = sorted({f"{each.gpus.count} x {each.gpus.model}" for each in machines if each.gpus is not None})
    if field == "where.sites":
        return "sites are " + ", ".join(sorted({each.site for each in machines}))
    return "there are " + ", ".join(offered) if offered else ""


def _cpu_share(machine: Machine, gpus: int) -> float:
    assert machine.gpus is not None
    return max(int(machine.cpu_milli * _SHARE * gpus / machine.gpus.count / 100) / 10, 0.1)


def _memory_share(machine: Machine, gpus: int) -> int:
    assert machine.gpus is not None
    return int(machine.memory_mib * _SHARE * gpus / machine.gpus.count) << 20


def _fabric_share(machine: Machine, gpus: int) -> Fabric:
    """An adapter at least: no two pods share one."""
    assert machine.gpus is not None
    assert machine.fabric is not None
    pages = machine.fabric.huge_pages_mib * gpus // machine.gpus.count // _HUGE_PAGE * _HUGE_PAGE
    return Fabric(max(machine.fabric.adapters * gpus // machine.gpus.count, 1), pages)


def _price(machine: Machine, gpus: int, cpus: float) -> float:
    price = hourly(machine, gpus, cpus)
    return float("inf") if price is None else price
