"""What must be known beyond a loop and a restart, as JSON in a ConfigMap."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace


class Backoff(Struct, frozen=True):
    """A group, or a zone of one, that had no capacity."""

    code: str
    """Its class: ``capacity``, ``quota``, ``addresses`` … as in ``launch_failures.detection``."""
    message: str
    first: float
    last: float
    until: float
    step: int
    """How many times in a row."""


class Resize(Struct, frozen=True):
    """Our last write of a group's size."""

    at: float
    was: int
    to: int


class Drain(Struct, frozen=True):
    """A node on its way out."""

    group: str
    instance: str
    stage: Literal["tainted", "draining", "ending"]
    since: float
    """When this stage began."""
    started: float
    reason: str
    forced: bool = False
    """Whether it ends in any case: a spot interruption, a lifecycle hook, a machine that never came up."""
    deadline: float | None = None


class Booking(Struct, frozen=True):
    """Machines that wait for a gang."""

    machines: tuple[str, ...]
    """Node names, or ``group#n`` for those that are still to come."""
    until: float


class Memory(Struct, frozen=True):
    """All of it. Keys: groups by name, nodes by name, gangs by key."""

    version: int = 1
    backoffs: dict[str, Backoff] = {}
    """``group`` or ``group/zone``."""
    resizes: dict[str, Resize] = {}
    seen: dict[str, float] = {}
    """Group → end of the newest failed activity that was judged. One may end long after its start: read
    back an hour further."""
    short: dict[str, float] = {}
    """Group → since when it asks for more than it has."""
    idle: dict[str, float] = {}
    """Node → when its last pod left."""
    drains: dict[str, Drain] = {}
    bookings: dict[str, Booking] = {}
    boots: dict[str, float] = {}
    """Instance → when it was first seen."""
    waiting: dict[str, float] = {}
    """Gang → by when all of it must be up."""
    spared: dict[str, float] = {}
    """Node → until when it is left alone, as it could not be emptied."""
    misfits: dict[str, Backoff] = {}
    """``group/work`` whose machines turned out not to take that work."""
    disputed: dict[str, float] = {}
    """Pod, by uid → since when it fits, and the scheduler refuses it."""
    broken: dict[str, float] = {}
    """Broken machine → when its end was first asked for."""


def moved(memory: Memory, seconds: float) -> Memory:
    """The same, by a clock that was set so much later: as much time has passed as before."""

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
        # By AWS's clock.
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
    """JSON, keys in order: equal memories are equal texts."""
    return msgspec.json.encode(memory, order="sorted").decode()


def load(text: str | bytes) -> Memory:
    """A memory out of JSON; an empty one where it can't be read (a newer or broken one must stop nothing)."""
    try:
        return msgspec.json.decode(text, type=Memory)
    except msgspec.MsgspecError:
        return Memory()
