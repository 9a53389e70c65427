"""What the simulated world is like: how machines boot, where there are any, what breaks.

The numbers here are rounded from what people report of GPU machines on AWS; a trace may bring
others along.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from msgspec import Struct


class Capacity(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """So many machines of a type, and no more, can be had in a region or in some of its zones for a time."""

    region: str
    begin: float
    end: float
    machines: int
    """Running ones counted; of all the zones together."""
    type: str = ""
    """Empty for all types, each by itself."""
    zones: tuple[str, ...] = ()
    """Empty for the whole region."""
    spot: bool | None = None
    """One market; None for both, each by itself."""


class Outage(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A region whose API does not answer for a time."""

    region: str
    begin: float
    end: float


class Machines(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Physical nodes that are there from the beginning and stay."""

    name: str
    count: int
    gpus: int
    cpu: int
    """Millicores."""
    memory: int
    """MiB."""
    labels: Mapping[str, str] = {}


class Conditions(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of it. Times in seconds, chances from 0 to 1."""

    seed: int = 1
    reaction: float = 6
    """From a change of size to the launches that it asks for."""
    running: float = 25
    """From a launch to a machine that runs."""
    boot: float = 150
    """From a launch to a node that is ready: the median."""
    boot_spread: float = 0.25
    """Sigma of the logarithm of it."""
    gpu_startup: float = 30
    """From a ready node to one that offers its GPUs."""
    ending: float = 45
    """From the end of an instance until its group no longer shows it."""
    heartbeat: float = 3600
    """How long a lifecycle hook holds an instance that nobody releases."""
    unready: float = 40
    """From the end of an instance until its node is unready."""
    forgotten: float = 90
    """From the end of an instance until the cloud's node controller deletes its node."""
    recreate: float = 5
    """From the loss of a pod until its controller makes a new one."""
    notice: float = 120
    """Of a spot interruption."""
    retry: float = 60
    """From a launch that failed until its group tries again; twice as long each time…"""
    retry_most: float = 900
    """… up to this."""
    stillborn: float = 0.0
    """The chance that a machine never becomes a node."""
    interrupted: float = 0.0
    """Interruptions of a spot machine, an hour."""
    capacity: tuple[Capacity, ...] = ()
    """Where there is not enough of it. Elsewhere there always is."""
    outages: tuple[Outage, ...] = ()
    physical: tuple[Machines, ...] = ()
    owned_price: float = 0.0
    """USD an hour of a physical node: it is paid for in any case."""


class Fate:
    """What befalls one machine, by chance that comes out the same for every policy.

    It hangs on the seed, its group and its number there, not on the order in which things are asked: two
    policies that start the same machine see it boot in the same time.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: int, group: str, number: int) -> None:
        self._random = Random(f"{seed}/{group}/{number}")  # noqa: S311 - it is to be foreseeable

    def boot(self, conditions: Conditions) -> float | None:
        """Seconds until it is a ready node; None for never."""
        spread = self._random.gauss(0.0, conditions.boot_spread)
        stillborn = self._random.random() < conditions.stillborn
        return None if stillborn else conditions.boot * math.exp(min(max(spread, -1.0), 1.5))

    def interruption(self, conditions: Conditions) -> float | None:
        """Seconds until its spot notice; None for never."""
        chance = self._random.random()
        if conditions.interrupted <= 0:
            return None
        return -math.log(1 - chance) / conditions.interrupted * 3600
