"""Gangs: what they still need, where they may run, and the conditions of provisioning requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.autoscaler.config import Config
from infra.autoscaler.decision import Answer
from infra.autoscaler.launch_failures import resource_flavors
from infra.autoscaler.memory import Booking, Memory
from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.observed.snapshot import GPU, Gang, Pod, Shape, Snapshot
from infra.autoscaler.placement.demand import Item, Wanted, bare
from infra.autoscaler.reasons import Reason
from infra.autoscaler.reporting import sentences
from infra.catalogue.labels import SITE

REQUEST = "ProvisioningRequest"


@dataclass(frozen=True, slots=True)
class Bound:
    """The pods of a gang that are bound to nodes."""

    pods: tuple[Pod, ...] = ()
    site: str | None = None
    gpus: str | None = None
    """The site of those with GPUs. A launcher, which fits anywhere, does not bind the others."""


def items(view: ClusterState, snapshot: Snapshot, memory: Memory, config: Config, now: float) -> list[Item]:
    """Every gang that still needs places, unless its pods are placed one by one."""
    waiting: dict[str, list[Pod]] = {}
    for pod in view.pending:
        if pod.gang is not None:
            waiting.setdefault(pod.gang, []).append(pod)
    bound = _bound(view)
    found = []
    for key in sorted({*snapshot.gangs, *waiting}):
        gang = snapshot.gangs.get(key)
        item = _item(key, gang, waiting.get(key, []), bound.get(key, Bound()), memory, config, now)
        if item is not None:
            found.append(item)
    return found


def _bound(view: ClusterState) -> dict[str, Bound]:
    pods: dict[str, list[Pod]] = {}
    sites: dict[str, str] = {}
    gpus: dict[str, str] = {}
    for machine in view.machines:
        for pod in machine.pods:
            if pod.gang is not None and not pod.deleting:
                pods.setdefault(pod.gang, []).append(pod)
                group = view.groups.get(machine.group or "")
                site = group.group.site if group is not None else machine.labels.get(SITE, "")
                sites.setdefault(pod.gang, site)
                if _gpued(pod.shape):
                    gpus.setdefault(pod.gang, site)
    return {key: Bound(tuple(found), sites[key], gpus.get(key)) for key, found in pods.items()}


def _gpued(shape: Shape) -> bool:
    return any(name == GPU for name, _ in shape.requests)


def _item(
    key: str,
    gang: Gang | None,
    waiting: list[Pod],
    bound: Bound,
    memory: Memory,
    config: Config,
    now: float,
) -> Item | None:
    if gang is not None and gang.kind == REQUEST and not (gang.condition == "Provisioned" and bound.pods):
        missing = _missing(gang, waiting) if _open(gang, memory, now) else []
    elif gang is not None and not bound.pods:
        # Pods of a running gang may have finished and been deleted: missing ones are added only while none
        # runs.
        missing = _missing(gang, waiting)
    else:
        missing = []
    if not waiting and not missing:
        return None
    total = len(waiting) + sum(each.virtual for each in missing)
    least = total
    if gang is not None and gang.least:
        least = max(0, gang.least - len(bound.pods))
        if bound.pods:
            least = min(total, least)  # the others may have finished
    if least == 0:
        return None  # it is complete: further pods are placed one by one
    shapes: dict[int, list[Pod]] = {}
    for pod in waiting:
        shapes.setdefault(id(pod.shape), []).append(pod)
    wanted = [Wanted(bare(pods[0].shape), tuple(pods)) for pods in shapes.values()] + missing
    priority = max([each.kind.shape.priority for each in wanted] + ([gang.priority] if gang else []))
    across = gang is not None and gang.across
    site = bound.gpus if any(_gpued(each.kind.shape) for each in wanted) else bound.site
    deadline = memory.waiting.get(key)
    cooling = None
    if deadline is not None and deadline <= now < deadline + config.backoff_min:
        cooling = deadline + config.backoff_min
    return Item(
        wanted,
        priority,
        gang.created if gang is not None else min(pod.created for pod in waiting),
        gang=gang,
        key=key,
        least=least,
        site=None if across else site,
        booked=gang is not None and gang.condition == "Provisioned",
        cooling=cooling,
    )


def _open(gang: Gang, memory: Memory, now: float) -> bool:
    """Whether a request still asks for machines, or has reserved ones."""
    if gang.condition == "Provisioned":
        booking = memory.bookings.get(gang.key)
        return booking is not None and booking.until > now
    return gang.condition in ("", "Accepted")


def _missing(gang: Gang, pods: Iterable[Pod]) -> list[Wanted]:
    """What its object declares, less the existing pods.

    Existing pods are matched by shape, or by requests, as admission may change a pod's shape.
    """
    left = [each.count for each in gang.sets]
    others: list[Pod] = []
    for pod in pods:
        for place, each in enumerate(gang.sets):
            if left[place] > 0 and each.shape is pod.shape:
                left[place] -= 1
                break
        else:
            others.append(pod)
    spare = 0
    for pod in others:
        for place, each in enumerate(gang.sets):
            if left[place] > 0 and each.shape.requests == pod.shape.requests:
                left[place] -= 1
                break
        else:
            spare += 1
    found = []
    for count, each in zip(left, gang.sets, strict=True):
        taken = min(spare, max(0, count))
        spare -= taken
        if count > taken:
            found.append(Wanted(bare(each.shape), (), count - taken, each.labels))
    return found


@dataclass(frozen=True, slots=True)
class Standing:
    """The result of a gang in this plan."""

    placed: bool
    up: bool
    """Whether all of it is on running machines."""
    started: bool
    """Whether machines are started for it now."""
    never: Reason | None
    """Why it will never fit with its flavor; None if it may."""
    unknown: Reason | None = None
    """What it requests that no machine has, with any flavor."""
    machines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """The memory of gangs, and the conditions of requests."""

    answers: list[Answer]
    bookings: dict[str, Booking]
    waiting: dict[str, float]
    failed: dict[str, Reason]
    """Gangs whose deadline has passed."""
    exhausted: Mapping[str, str]
    """Pools that cannot launch machines anywhere → the reason."""


def settle(
    standings: Mapping[str, Standing],
    view: ClusterState,
    snapshot: Snapshot,
    memory: Memory,
    config: Config,
    now: float,
) -> Kept:
    """Conditions, reservations and deadlines, from the placement of every gang in this plan."""
    waiting, failed = _deadlines(standings, memory, config, now)
    booked = {name for each in memory.bookings.values() if each.until > now for name in each.machines}
    exhausted = resource_flavors.exhausted(view, booked)
    kept = Kept([], {}, waiting, failed, exhausted)
    bound = {key: len(found.pods) for key, found in _bound(view).items()}
    for key in sorted(snapshot.gangs):
        gang = snapshot.gangs[key]
        if gang.kind != REQUEST:
            continue
        standing = standings.get(key)
        if not gang.condition:
            message = "the request is understood and waits for its machines"
            kept.answers.append(_answer(gang, "Accepted", "Accepted", message))
        elif gang.condition == "Accepted" and standing is not None:
            flavor = resource_flavors.of(gang, snapshot.flavors)
            _answer_accepted(kept, gang, standing, exhausted.get(flavor), config, now)
        elif gang.condition == "Provisioned" and key in memory.bookings:
            _answer_provisioned(kept, gang, standing, memory.bookings[key], bound.get(key, 0), config, now)
    return kept


def _deadlines(
    standings: Mapping[str, Standing], memory: Memory, config: Config, now: float
) -> tuple[dict[str, float], dict[str, Reason]]:
    """The deadline of each gang's machines, and the gangs that missed it."""
    waiting: dict[str, float] = {}
    failed: dict[str, Reason] = {}
    for key, standing in standings.items():
        deadline = memory.waiting.get(key)
        if deadline is not None and deadline <= now:
            again = deadline + config.backoff_min
            if not standing.up and now < again:
                waiting[key] = deadline
                failed[key] = Reason("late", limit=config.boot_timeout, until=again)
        elif standing.placed and not standing.up:
            if deadline is None or standing.started:
                deadline = now + config.boot_timeout
            waiting[key] = deadline
    return waiting, failed


def _answer_accepted(
    kept: Kept, gang: Gang, standing: Standing, exhausted: str | None, config: Config, now: float
) -> None:
    """Set a request's condition to provisioned or failed. Nothing while it waits."""
    if standing.unknown:
        # Kueue retries a failed request (up to a thousand times), but deactivates a workload whose capacity
        # was revoked.
        why = sentences.reason(standing.unknown)
        kept.answers.append(_answer(gang, "CapacityRevoked", "NothingHasIt", why))
    elif standing.never:
        kept.answers.append(_answer(gang, "Failed", "NeverFits", sentences.reason(standing.never)))
    elif not standing.placed and exhausted:
        # Kueue assigns another flavor: this one is closed meanwhile.
        kept.answers.append(_answer(gang, "Failed", "NoCapacity", f"no capacity: {exhausted}"))
    elif standing.placed and standing.up:
        kept.bookings[gang.key] = Booking(standing.machines, now + config.booking)
        message = f"{len(standing.machines)} machines are ready and are kept for {config.booking} s"
        kept.answers.append(_answer(gang, "Provisioned", "Provisioned", message))
        kept.waiting.pop(gang.key, None)
    elif gang.key in kept.failed:
        kept.answers.append(_answer(gang, "Failed", "NotInTime", sentences.reason(kept.failed[gang.key])))


def _answer_provisioned(
    kept: Kept,
    gang: Gang,
    standing: Standing | None,
    booking: Booking,
    bound: int,
    config: Config,
    now: float,
) -> None:
    """Keep a request's machines until its pods exist, or report that they did not appear in time."""
    if bound >= (gang.least or sum(each.count for each in gang.sets)):
        return
    if booking.until <= now:
        message = f"its pods did not come within {config.booking} s: the machines are free for others"
        kept.answers.append(_answer(gang, "BookingExpired", "BookingExpired", message))
        return
    machines = standing.machines if standing is not None else booking.machines
    if bound:
        # Bound pods have their machines; those of the others are kept until they are bound.
        machines = tuple(sorted({*machines, *booking.machines}))
    kept.bookings[gang.key] = Booking(machines, booking.until)


def _answer(gang: Gang, condition: str, reason: str, message: str) -> Answer:
    return Answer(gang.key, gang.namespace, gang.name, condition, reason, message)  # type: ignore[arg-type]
