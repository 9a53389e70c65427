"""The simulated conditions: boot times, capacity, failures.

The defaults are rounded from reports about GPU machines on AWS; a trace may have its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from msgspec import Struct


class Capacity(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A limit on the machines of a type in a region, or in some of its zones, for a time."""

    region: str
    begin: float
    end: float
    machines: int
    """The maximum, including running ones; of all the zones together."""
    type: str = ""
    """Empty for all types, each separately."""
    zones: tuple[str, ...] = ()
    """Empty for the whole region."""
    spot: bool | None = None
    """One market; None for both, each separately."""


class Outage(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A time in which a region's API does not answer."""

    region: str
    begin: float
    end: float


class Machines(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Physical nodes, which exist from the start."""

    name: str
    count: int
    gpus: int
    cpu: int
    """In millicores."""
    memory: int
    """In MiB."""
    labels: Mapping[str, str] = {}


class Conditions(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All conditions. Times in seconds, probabilities from 0 to 1."""

    seed: int = 1
    reaction: float = 6
    """From a change of size to the launches."""
    running: float = 25
    """From a launch to a running machine."""
    boot: float = 150
    """From a launch to a ready node: the median."""
    boot_spread: float = 0.25
    """Sigma of its logarithm."""
    gpu_startup: float = 30
    """From a ready node until it reports its GPUs."""
    ending: float = 45
    """From the termination of an instance until its group no longer lists it."""
    heartbeat: float = 3600
    """The timeout of a lifecycle hook."""
    unready: float = 40
    """From the termination of an instance until its node is unready."""
    forgotten: float = 90
    """From the termination of an instance until the cloud's node controller deletes its node."""
    recreate: float = 5
    """From the loss of a pod until its controller creates a new one."""
    notice: float = 120
    """Of a Spot interruption."""
    retry: float = 60
    """From a failed launch until its group retries; doubled each time…"""
    retry_most: float = 900
    """… up to this maximum."""
    stillborn: float = 0.0
    """The probability that a machine never becomes a node."""
    interrupted: float = 0.0
    """Interruptions of a Spot Instance per hour."""
    capacity: tuple[Capacity, ...] = ()
    """Limits of capacity. Elsewhere it is unlimited."""
    outages: tuple[Outage, ...] = ()
    physical: tuple[Machines, ...] = ()
    owned_price: float = 0.0
    """USD per hour of a physical node, which is paid for in any case."""


class Fate:
    """The random events of one machine, the same for every policy.

    They depend on the seed, its group and its number there, not on the order of calls: two policies that
    launch the same machine see the same boot time.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: int, group: str, number: int) -> None:
        self._random = Random(f"{seed}/{group}/{number}")  # noqa: S311 - it is to be foreseeable

    def boot(self, conditions: Conditions) -> float | None:
        """Seconds until its node is ready; None: never."""
        spread = self._random.gauss(0.0, conditions.boot_spread)
        stillborn = self._random.random() < conditions.stillborn
        return None if stillborn else conditions.boot * math.exp(min(max(spread, -1.0), 1.5))

    def interruption(self, conditions: Conditions) -> float | None:
        """Seconds until its Spot interruption notice; None: never."""
        chance = self._random.random()
        if conditions.interrupted <= 0:
            return None
        return -math.log(1 - chance) / conditions.interrupted * 3600
