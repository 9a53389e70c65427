"""A clock that is set by an hour makes nothing older than it is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from autoscaler.make import NOW, config, group, node, snapshot, state
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from infra.autoscaler import memory as remembered
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import TaintNode
from infra.autoscaler.loop import Loop, Parts
from infra.autoscaler.memory import Backoff, Booking, Drain, Memory, Resize
from infra.autoscaler.steady_clock import BELIEVED, SMALL, Steady

WEST = group()
CONFIG = config(WEST, idle=600)


@dataclass
class Clocks:
    """Of a machine whose time of day may be set."""

    wall: float = NOW
    monotonic: float = 50.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def steady(self) -> Steady:
        return Steady(lambda: self.wall, lambda: self.monotonic)


@given(st.lists(st.tuples(st.floats(0.1, 60), st.floats(-7200, 7200)), max_size=20))
def test_time_goes_on_whatever_the_clock_is_set_to(steps: list[tuple[float, float]]) -> None:
    clocks = Clocks()
    steady = clocks.steady()
    before = steady()
    for seconds, jump in steps:
        clocks.passes(seconds)
        clocks.wall += jump
        now = steady()
        assert abs(now - before - seconds) <= SMALL + 1e-3
        before = now


def test_small_corrections_are_followed() -> None:
    clocks = Clocks()
    steady = clocks.steady()
    for _ in range(100):
        clocks.passes(10)
        clocks.wall += 1
        assert steady() == pytest.approx(clocks.wall)
    assert steady.moved() == 0


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_stays_elsewhere_is_believed_and_what_is_remembered_moves(jump: float) -> None:
    clocks = Clocks()
    steady = clocks.steady()
    clocks.wall += jump
    assert steady() == NOW
    clocks.passes(BELIEVED - 1)
    assert steady.moved() == 0
    clocks.passes(1)
    assert steady.moved() == pytest.approx(jump)
    assert steady() == pytest.approx(clocks.wall)
    assert steady.moved() == 0


def test_one_that_comes_back_was_never_elsewhere() -> None:
    clocks = Clocks()
    steady = clocks.steady()
    clocks.wall += 3600
    steady()
    clocks.passes(BELIEVED - 1)
    clocks.wall -= 3600
    assert steady() == pytest.approx(clocks.wall)
    clocks.passes(BELIEVED)
    assert steady.moved() == 0


class World:
    """A ready machine that stands idle, and a store that forgets nothing."""

    def __init__(self, clocks: Clocks) -> None:
        self.kept = Memory()
        self.done: list[object] = []
        self.loop = Loop(
            CONFIG,
            Parts(
                lambda: snapshot([node(WEST)], (), [state(WEST, 1, 1)], at=clocks.wall),
                decide,
                self,
                None,
                self,  # type: ignore[arg-type] # nothing is written in a dry run
                self,  # type: ignore[arg-type]
            ),
            dry=True,
            clock=clocks.steady(),
        )

    def load(self) -> Memory:
        return self.kept

    def save(self, memory: Memory) -> None:
        self.kept = memory

    def ends(self) -> bool:
        decision = self.loop.once().decision
        assert decision is not None
        return any(isinstance(each, TaintNode) for each in decision.actions)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_an_idle_machine_ends_after_its_time_whatever_the_clock_says(jump: float) -> None:
    clocks = Clocks()
    world = World(clocks)
    assert not world.ends()
    clocks.wall += jump
    since = clocks.monotonic
    while not world.ends():
        clocks.passes(10)
    assert CONFIG.idle - CONFIG.settle <= clocks.monotonic - since <= CONFIG.idle
    # Also while it is believed at last.
    busy = World(clocks)
    busy.ends()
    clocks.wall += jump
    for _ in range(10):
        assert not busy.ends()
        clocks.passes(10)


def test_all_that_is_remembered_moves_but_what_another_clock_said() -> None:
    barred = {"a": Backoff("capacity", "", 1.0, 2.0, 3.0, 1)}
    drain = Drain("g", "i", "tainted", 1.0, 2.0, "x")
    before = Memory(
        backoffs=barred,
        resizes={"a": Resize(1.0, 0, 1)},
        seen={"a": 1.0},
        short={"a": 1.0},
        idle={"a": 1.0},
        drains={"a": replace(drain, deadline=3.0), "b": drain},
        bookings={"a": Booking(("n",), 1.0)},
        boots={"a": 1.0},
        waiting={"a": 1.0},
        spared={"a": 1.0},
        misfits=barred,
        disputed={"a": 1.0},
        broken={"a": 1.0},
    )
    after = remembered.moved(before, 100.0)
    assert remembered.moved(after, -100.0) == before
    assert after.seen == before.seen
    assert after.drains["a"].deadline == 103.0
    assert after.drains["b"].deadline is None
    for name in Memory.__struct_fields__:
        if name not in ("version", "seen"):
            assert getattr(after, name) != getattr(before, name), name
