"""Chance that comes out the same for every policy.

What befalls a machine hangs on the seed, its group and its number there, not on the order in which things
are asked: two policies that start the same machine see it boot in the same time.
"""

from __future__ import annotations

import math
from random import Random

from infra.simulator.conditions import Conditions


class Fate:
    """What befalls one machine."""

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
