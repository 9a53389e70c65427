"""The state that must survive a loop and a restart, as JSON in a ConfigMap."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace


class Backoff(Struct, frozen=True):
    """The back-off of a group, or of one of its zones."""

    code: str
    """The failure class: ``capacity``, ``quota``, ``addresses`` … as in ``launch_failures.detection``."""
    message: str
    first: float
    last: float
    until: float
    step: int
    """The number of consecutive back-offs."""


class Resize(Struct, frozen=True):
    """Our last write of a group's size."""

    at: float
    was: int
    to: int


class Drain(Struct, frozen=True):
    """A node that is being drained."""

    group: str
    instance: str
    stage: Literal["tainted", "draining", "ending"]
    since: float
    """When this stage began."""
    started: float
    reason: str
    forced: bool = False
    """Whether it is terminated in any case: a Spot interruption, a lifecycle hook, a machine that never
    joined."""
    deadline: float | None = None


class Booking(Struct, frozen=True):
    """Machines reserved for a gang."""

    machines: tuple[str, ...]
    """Node names, or ``group#n`` for those not yet launched."""
    until: float


class Memory(Struct, frozen=True):
    """The whole memory. Keys: groups by name, nodes by name, gangs by key."""

    version: int = 1
    backoffs: dict[str, Backoff] = {}
    """``group`` or ``group/zone``."""
    resizes: dict[str, Resize] = {}
    seen: dict[str, float] = {}
    """Group → end of the newest failed activity that was processed. An activity may end long after its
    start: they are read back another hour."""
    short: dict[str, float] = {}
    """Group → since when it requests more than it has."""
    idle: dict[str, float] = {}
    """Node → when its last pod left."""
    drains: dict[str, Drain] = {}
    bookings: dict[str, Booking] = {}
    boots: dict[str, float] = {}
    """Instance → when it was first seen."""
    waiting: dict[str, float] = {}
    """Gang → the deadline for all of its machines."""
    spared: dict[str, float] = {}
    """Node → until when it is not drained again, as it could not be emptied."""
    misfits: dict[str, Backoff] = {}
    """``group/work`` whose machines turned out not to fit that work."""
    disputed: dict[str, float] = {}
    """Pod uid → since when it fits by our rules, but the scheduler refuses it."""
    broken: dict[str, float] = {}
    """Broken machine → when its termination was first requested."""


def moved(memory: Memory, seconds: float) -> Memory:
    """The same memory with all times shifted by ``seconds``, after the clock was set."""

    def later(when: dict[str, float]) -> dict[str, float]:
        return {key: at + seconds for key, at in when.items()}

    def barred(found: dict[str, Backoff]) -> dict[str, Backoff]:
        return {
            key: replace(
                each, first=each.first + seconds, last=each.last + seconds, until=each.until + seconds
            )
            for key, each in found.items()
        }

    return replace(
        memory,
        backoffs=barred(memory.backoffs),
        resizes={key: replace(each, at=each.at + seconds) for key, each in memory.resizes.items()},
        # In AWS's time.
        seen=memory.seen,
        short=later(memory.short),
        idle=later(memory.idle),
        drains={
            key: replace(
                each,
                since=each.since + seconds,
                started=each.started + seconds,
                deadline=None if each.deadline is None else each.deadline + seconds,
            )
            for key, each in memory.drains.items()
        },
        bookings={key: replace(each, until=each.until + seconds) for key, each in memory.bookings.items()},
        boots=later(memory.boots),
        waiting=later(memory.waiting),
        spared=later(memory.spared),
        misfits=barred(memory.misfits),
        disputed=later(memory.disputed),
        broken=later(memory.broken),
    )


def dump(memory: Memory) -> str:
    """JSON with sorted keys: equal memories give equal texts."""
    return msgspec.json.encode(memory, order="sorted").decode()


def load(text: str | bytes) -> Memory:
    """Parse a memory; an empty one if it is invalid, as a newer or damaged one must not stop the
    controller."""
    try:
        found = msgspec.json.decode(text, type=Memory)
    except msgspec.MsgspecError:
        return Memory()
    return found if found.version == Memory().version else Memory()
