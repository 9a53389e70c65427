"""How long the lab waits for something."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from network import node
from network.machine import PATIENCE
from network.node import Late, wait_for

SECONDS = 10


class Clock:
    """The place of `time`: what sleeps takes no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(node, "time", made)
    return made


def periods(clock: Clock, condition: Callable[[], object]) -> int:
    """How many pass until it is late."""
    with pytest.raises(Late):
        wait_for(condition, "end of it", SECONDS, every=1)
    return int(clock.now / (SECONDS * PATIENCE))


def test_what_does_not_change_gets_one_period(clock: Clock) -> None:
    assert periods(clock, lambda: False) == 1


def test_numbers_that_change_with_each_packet_get_no_more_time(clock: Clock) -> None:
    counter = itertools.count()

    def counting() -> bool:
        raise AssertionError(f"{next(counter)} bytes in, 0 bytes out")

    assert periods(clock, counting) == 1


def test_another_answer_gets_one_more_period_and_no_third(clock: Clock) -> None:
    words = itertools.chain(["down"], itertools.repeat("connecting"))

    def connecting() -> bool:
        raise AssertionError(next(words))

    assert periods(clock, connecting) == 2


def test_what_is_missing_is_in_the_message(clock: Clock) -> None:
    def missing() -> bool:
        raise AssertionError("rack-a us-west-2-1: 0 bytes out")

    with pytest.raises(Late, match="us-west-2-1"):
        wait_for(missing, "traffic in every tunnel", SECONDS)
