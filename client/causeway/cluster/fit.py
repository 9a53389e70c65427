"""Which machines can run a worker, and its default resources there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causeway.cluster.offer import Fabric, GpuOffer, Machine, Offer
from causeway.cluster.prices import hourly
from causeway.errors import CausewayError, InputError, Problem
from causeway.job import Gpus, Job
from causeway.units import format_size
from causeway.workers import Workers, workers_of

EFA = "efa"
"""The interconnect provided by Elastic Fabric Adapters."""
_SHARE = 0.9
"""Share of a machine's allocatable resources given to workers: agents of the cluster run beside them."""
_HUGE_PAGE = 2
"""In MiB."""
_LONGEST = 63
"""Maximum length of a pod's name, checked by JobSet."""
_CPUS, _MEMORY = 2.0, 8 << 30
"""Default resources of a worker without GPUs."""


@dataclass(frozen=True)
class Fit:
    """A role, with the machines that can run it."""

    workers: Workers
    machines: Sequence[Machine]
    """Machines that can run at least one worker, the cheapest first."""
    cpus: float
    memory: int
    """In bytes."""
    fabric: Fabric | None = None
    """A worker's share of a machine's Elastic Fabric Adapters, if it asks for `efa`."""


def fit(job: Job, workers: Workers, offer: Offer) -> Fit:
    """Find where the workers of a role can run. Raises InputError with the field that rules out all
    machines."""
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
        what = f"no machine that fits otherwise has {cpus:g} processors and {format_size(memory)}"
        hint = f"at most {most.cpu_milli // 1000} and {format_size(most.memory_mib << 20)}"
        raise InputError([Problem("job", "memory", what, hint)])
    if job.shm and job.shm > memory:
        what = f"{format_size(job.shm)} is more than the memory of a worker, {format_size(memory)}"
        raise InputError([Problem("job", "shm", what, "shm is a part of memory; set memory, too")])
    by_price = sorted(left, key=lambda each: _price(each, gpus.count, cpus))
    fabric = None
    if gpus.count and gpus.interconnect == EFA:
        shares = [_fabric_share(machine, gpus.count) for machine in left]
        fabric = Fabric(min(each.adapters for each in shares), min(each.huge_pages_mib for each in shares))
    return Fit(workers, by_price, cpus, memory, fabric)


def fits_of(written: Mapping[str, Any], offer: Offer) -> list[Fit]:
    """Find where the roles of a submitted job can run; empty if it could not be submitted any more.
    ``written``: the job, perhaps written by another version of this program."""
    try:
        job = Job.model_validate(written)
        image = offer.images.get(job.image or offer.default_image)
        workers = workers_of(job, image_launcher=image.launcher if image else None)
        return [fit(job, each, offer) for each in workers]
    except (CausewayError, ValueError):
        return []


def check_together(job: Job, fits: Sequence[Fit]) -> None:
    """Check that all workers can run at once, and that their names are valid. Raises InputError with the
    fields."""
    problems = [*_names(job, fits), *_room(job, fits)]
    if problems:
        raise InputError(problems)


def _names(job: Job, fits: Sequence[Fit]) -> Iterator[Problem]:
    """Report names that are too long. JobSet rejects a name with which a pod's,
    ``resnet-9999-worker-0-7-abcde``, would exceed a DNS label (RFC 1035; ``jobset_webhook.go``,
    ValidateCreate)."""
    number = f"-s99-{job.sweep.trials}" if job.sweep else "-9999"
    for each in fits:
        role, count = each.workers.role, each.workers.count
        most = _LONGEST - len(f"{number}-{role}-0-{count - 1}-abcde")
        if len(job.name) > most:
            length = f"{job.name} has {len(job.name)} characters"
            what = f"{length}; with {count} x {role}, at most {most} are allowed"
            yield Problem("job", "name", what, "the names of their pods begin with it")
            return


def _room(job: Job, fits: Sequence[Fit]) -> Iterator[Problem]:
    """Report roles, or the GPUs of all roles together, that do not fit into an empty cluster with its pools
    at their maximum."""
    for each in fits:
        workers, most = each.workers, _most(each, job.where.near)
        if workers.count > most:
            field = f"roles.{workers.role}.count" if job.roles else "nodes"
            count = workers.gpus.count
            gpus = f" with {count} GPU{'s' * (count > 1)} each" if count else ""
            what = (
                f"{workers.count} workers{gpus} can never start: the machines that fit have room for {most}"
            )
            yield Problem("job", field, what, f"use at most {most}, or request less for each worker")
            return
    # Compare by identity: two kinds of machines may be equal.
    machines = {id(machine): machine for each in fits if each.workers.gpus.count for machine in each.machines}
    there = sum(machine.count * machine.gpus.count for machine in machines.values() if machine.gpus)
    wanted = sum(each.workers.count * each.workers.gpus.count for each in fits)
    if wanted > there:
        what = f"all workers together request {wanted} GPUs; the machines that fit have {there}"
        yield Problem("job", "roles", what)


def _most(fit: Fit, near: str | None) -> int:
    """The largest number of workers of a role that can run at once."""
    sites: dict[str, int] = {}
    for machine in fit.machines:
        room = _workers_on(machine, fit)
        if near == "host":
            sites[machine.site] = max(sites.get(machine.site, 0), room)
        else:
            sites[machine.site] = sites.get(machine.site, 0) + machine.count * room
    return max(sites.values()) if near else sum(sites.values())


def _workers_on(machine: Machine, fit: Fit) -> int:
    """The number of workers of a role that one machine can run."""
    gpus = fit.workers.gpus.count
    room = min(machine.cpu_milli // max(round(fit.cpus * 1000), 1), (machine.memory_mib << 20) // fit.memory)
    return min(room, machine.gpus.count // gpus) if gpus and machine.gpus else room


_Demand = tuple[str, Callable[[Machine], bool], str]
"""A field, whether a machine satisfies it, and the error if none does."""


def _demands(job: Job, gpus: Gpus, offer: Offer) -> Iterator[_Demand]:
    """Yield the job's demands in the order in which they are checked."""
    if job.where.sites:
        yield "where.sites", _at(job.where.sites), f"no machine is at {', '.join(job.where.sites)}"
    wanted = {f"mounts.{name}": name for name, yes in job.mounts.items() if yes}
    if job.checkpoints.volume:
        wanted["checkpoints.volume"] = job.checkpoints.volume
    for field, name in wanted.items():
        if name in offer.mounts:
            yield field, _at(offer.mounts[name].sites), f"no machine there has {name}"
    if not job.where.spot:
        yield "where.spot", lambda each: not each.is_spot, "it has only spot instances"
    if gpus.count == 0:
        return
    yield "gpus", _with(lambda _: True), "the cluster has no machine with GPUs there"
    priority = job.priority or offer.default_priority
    if priority is not None:
        classes = offer.priorities.get(priority, ())
        what = f"priority {priority} uses {' and '.join(classes) or 'no'} GPUs, but none are available there"
        yield "priority", _with(lambda has: has.gpu_class in classes), what
    if (model := gpus.model) is not None:
        yield "gpus.model", _with(lambda has: has.model == model), f"{model} is not available there"
    if (wanted_class := gpus.class_) is not None:
        what = f"no machine there has {wanted_class} GPUs"
        yield "gpus.class", _with(lambda has: has.gpu_class == wanted_class), what
    if (memory := gpus.memory) is not None:
        what = f"no GPU there has {format_size(memory)}"
        yield "gpus.memory", _with(lambda has: has.memory_mib << 20 >= memory), what
    if (interconnect := gpus.interconnect) is not None:
        if interconnect == EFA:
            yield "gpus.interconnect", lambda each: each.fabric is not None, "pods do not get adapters there"
        else:
            what = f"no machine there has {interconnect}"
            yield "gpus.interconnect", _with(lambda has: has.interconnect == interconnect), what
    yield "gpus.count", _with(lambda has: has.count >= gpus.count), f"no machine there has {gpus.count} GPUs"


def _at(sites: Sequence[str]) -> Callable[[Machine], bool]:
    return lambda machine: machine.site in sites


def _with(holds: Callable[[GpuOffer], bool]) -> Callable[[Machine], bool]:
    return lambda machine: machine.gpus is not None and holds(machine.gpus)


def _hint(machines: Sequence[Machine], field: str) -> str:
    """Hint: the values that machines left by the earlier demands have."""
    offered = sorted({f"{each.gpus.count} x {each.gpus.model}" for each in machines if each.gpus is not None})
    if field == "where.sites":
        return "sites are " + ", ".join(sorted({each.site for each in machines}))
    return "available: " + ", ".join(offered) if offered else ""


def _cpu_share(machine: Machine, gpus: int) -> float:
    assert machine.gpus is not None
    return max(int(machine.cpu_milli * _SHARE * gpus / machine.gpus.count / 100) / 10, 0.1)


def _memory_share(machine: Machine, gpus: int) -> int:
    assert machine.gpus is not None
    return int(machine.memory_mib * _SHARE * gpus / machine.gpus.count) << 20


def _fabric_share(machine: Machine, gpus: int) -> Fabric:
    """A worker's adapters: at least one, as pods cannot share one."""
    assert machine.gpus is not None
    assert machine.fabric is not None
    pages = machine.fabric.huge_pages_mib * gpus // machine.gpus.count // _HUGE_PAGE * _HUGE_PAGE
    return Fabric(max(machine.fabric.adapters * gpus // machine.gpus.count, 1), pages)


def _price(machine: Machine, gpus: int, cpus: float) -> float:
    price = hourly(machine, gpus, cpus)
    return float("inf") if price is None else price
