"""The loop: what is kept before what is done, failures that pass, and a process that may die anywhere."""

from __future__ import annotations

import io
import itertools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest
from autoscaler import make
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from infra.autoscaler.config import Config
from infra.autoscaler.decision import (
    Decision,
    Done,
    FreeNode,
    Notice,
    Result,
    SetDesired,
    TaintNode,
    Terminate,
)
from infra.autoscaler.loop import LONGEST_PAUSE, Cycle, Loop, Parts, kept
from infra.autoscaler.memory import Booking, Drain, Memory, Resize
from infra.autoscaler.observed.snapshot import Node, Pod, Snapshot
from infra.autoscaler.reporting import logs

WEST, EAST = make.group("us-west-2"), make.group("us-east-1")
CONFIG = make.config(WEST, EAST)


class Killed(BaseException):
    """kill -9: nothing that is written may catch it."""


@dataclass
class World:
    """Everything around the loop. ``log`` has what was done in order."""

    sizes: dict[str, int] = field(default_factory=lambda: {WEST.name: 0, EAST.name: 0})
    memory: Memory = field(default_factory=Memory)
    log: list[str] = field(default_factory=list)
    holder: bool = True
    decides: Callable[[Snapshot, Memory, Config, float], Decision] | None = None
    fails: dict[str, Exception] = field(default_factory=dict)
    step: Callable[[str], None] = lambda what: None
    cycles: list[Cycle] = field(default_factory=list)
    now: float = 1000.0

    def _at(self, what: str) -> None:
        self.step(what)
        self.log.append(what)
        if what in self.fails:
            raise self.fails[what]

    # Store and lease.

    def load(self) -> Memory:
        self._at("load")
        return self.memory

    def save(self, memory: Memory) -> None:
        self._at("save")
        self.memory = memory
        self.step("saved")

    def held(self) -> bool:
        return self.holder

    # Reading and deciding.

    def read(self) -> Snapshot:
        self._at("read")
        states = (make.state(group, self.sizes[group.name]) for group in (WEST, EAST))
        return make.snapshot(groups=states)

    def decide(self, snapshot: Snapshot, memory: Memory, config: Config, now: float) -> Decision:
        if self.decides is not None:
            return self.decides(snapshot, memory, config, now)
        wanted = {WEST.name: 3, EAST.name: 2}
        actions = tuple(
            SetDesired(name, state.desired, wanted[name], "for a test")
            for name, state in snapshot.groups.items()
            if state.desired != wanted[name]
        )
        resizes = memory.resizes | {each.group: Resize(now, each.was, each.desired) for each in actions}
        return Decision(now, actions, replace(memory, resizes=resizes))

    # Writing.

    def set_desired(self, action: SetDesired) -> Result:
        self._at(f"{action.group} to {action.desired}")
        if self.sizes[action.group] != action.was:
            return Result("stale")
        self.sizes[action.group] = action.desired
        self.step("written")
        return Result("done")

    def do(self, action: Any) -> Result:
        self._at(type(action).__name__)
        return Result("done")

    terminate = release = do

    def ended(self, region: str, instance: str) -> bool | None:
        return None

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        return ()

    def node(self, name: str) -> Node | None:
        return None

    node_of = node

    # The loop on it.

    def loop(self, **more: Any) -> Loop:
        parts = Parts(
            self.read, self.decide, self, self, self, self, (self.cycles.append, *more.pop("observers", ()))
        )
        return Loop(more.pop("config", CONFIG), parts, clock=lambda: self.now, **more)

    def writes(self) -> list[str]:
        return [each for each in self.log if " to " in each]


def test_memory_is_kept_before_anything_is_done() -> None:
    world = World()
    cycle = world.loop().once()
    assert world.log[:3] == ["load", "read", "save"]
    assert sorted(world.log[3:]) == [f"{EAST.name} to 2", f"{WEST.name} to 3"]
    assert cycle.error is None
    assert [each.result.status for each in cycle.results] == ["done", "done"]


def test_02_a_second_loop_with_unchanged_state_writes_nothing() -> None:
    world = World()
    loop = world.loop()
    loop.once()
    world.log.clear()
    loop.once()
    assert world.log == ["read"], "nor is the memory written that did not change"


def test_35_who_does_not_hold_the_lease_does_nothing() -> None:
    world = World(holder=False)
    loop = world.loop()
    cycle = loop.once()
    assert world.log == []
    assert not cycle.leading
    world.holder = True
    world.memory = Memory(broken={"by another": 1.0})
    loop.once()
    assert world.memory.broken == {"by another": 1.0}, "what the former holder kept is read first"
    world.holder = False
    loop.once()
    world.holder = True
    world.log.clear()
    loop.once()
    assert world.log[0] == "load", "and so each time"


def test_35_a_lease_that_is_lost_on_the_way_stops_what_was_not_begun() -> None:
    world = World()

    def step(what: str) -> None:
        if what == "saved":
            world.holder = False

    world.step = step
    cycle = world.loop().once()
    assert {each.result.status for each in cycle.results} == {"stale"}
    assert world.writes() == []


def test_who_cannot_keep_its_memory_does_nothing() -> None:
    world = World(fails={"save": RuntimeError("conflict")})
    loop = world.loop()
    cycle = loop.once()
    assert cycle.error == "RuntimeError: conflict"
    assert world.writes() == []
    world.fails.clear()
    world.log.clear()
    loop.once()
    assert world.log[0] == "load", "what the other has written is read"
    assert len(world.writes()) == 2


@pytest.mark.parametrize("what", ["load", "read", "save"])
def test_33_failures_make_it_wait_longer_up_to_a_limit(what: str) -> None:
    world = World(fails={what: OSError("down")})
    loop = world.loop()
    pauses = [loop.pause()]
    for _ in range(40):
        assert loop.once().error == "OSError: down"
        pauses.append(loop.pause())
    assert pauses[:5] == [10.0, 20.0, 40.0, 80.0, LONGEST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    assert loop.last is None
    world.fails.clear()
    loop.once()
    assert loop.pause() == 10.0
    assert loop.last == world.now


def test_33_an_observer_that_fails_is_logged_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fault(cycle: Cycle) -> None:
        raise ValueError("not shown")

    world = World()
    with caplog.at_level(logging.ERROR, "infra"):
        assert world.loop(observers=(fault,)).once().error is None
    assert "not shown" in caplog.text
    assert len(world.cycles) == 1


@pytest.mark.parametrize("how", ["argument", "configuration"])
def test_34_a_dry_run_writes_nothing_anywhere(how: str) -> None:
    wet, dry = World(), World(holder=False)
    more: dict[str, Any] = {"dry": True} if how == "argument" else {"config": replace(CONFIG, dry_run=True)}
    plan = [each.action for each in wet.loop().once().results]
    loop = dry.loop(**more)
    for _ in range(3):
        cycle = loop.once()
        assert cycle.dry
        assert [each.action for each in cycle.results] == plan
    assert dry.writes() == []
    assert "save" not in dry.log


def test_what_was_not_done_is_not_remembered_as_done() -> None:
    drain = Drain(WEST.name, "i-1", "tainted", 5.0, 5.0, "idle")
    before = Memory(
        resizes={WEST.name: Resize(1.0, 0, 1)},
        drains={"b": drain, "c": drain},
        bookings={"old": Booking(("a",), 9.0)},
    )
    after = replace(
        before,
        resizes={WEST.name: Resize(9.0, 1, 5), EAST.name: Resize(9.0, 0, 2), "third": Resize(9.0, 0, 7)},
        drains={"a": drain, "b": replace(drain, stage="ending")},
        broken={"a machine": 9.0},
    )
    results = (
        Done(SetDesired(WEST.name, 1, 5, ""), Result("refused")),
        Done(SetDesired(EAST.name, 0, 2, ""), Result("failed")),
        Done(SetDesired("third", 0, 7, ""), Result("done", desired=4)),
        Done(TaintNode("a", ""), Result("refused")),
        Done(Terminate(WEST.name, "i-1", "b", ""), Result("stale")),
        Done(FreeNode("c", ""), Result("failed")),
    )
    found = kept(before, Decision(9.0, tuple(each.action for each in results), after), results)
    assert found.resizes == {
        WEST.name: before.resizes[WEST.name],
        EAST.name: after.resizes[EAST.name],
        "third": Resize(9.0, 0, 4),
    }
    assert found.drains == {"b": drain}, "the taint of c may be off"
    assert found.broken == after.broken
    planned = tuple(Done(each.action, Result("planned")) for each in results)
    dry = kept(before, Decision(9.0, (), replace(after, bookings={})), planned)
    assert (dry.resizes, dry.drains, dry.bookings) == (before.resizes, before.drains, before.bookings)


def test_it_ends_when_told_to() -> None:
    world, stop = World(), Event()
    world.step = lambda what: stop.set() if what == "written" else None
    world.loop(stop=stop).run()
    assert len(world.cycles) == 1
    assert 1 <= len(world.writes()) <= 2
    world.loop(stop=stop).run()
    assert len(world.cycles) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=4))
def test_killed_anywhere_its_successor_goes_on(deaths: list[int]) -> None:
    """However often it dies, and wherever: sizes come out right, none is written twice."""
    world = World()
    for death in deaths:
        steps = itertools.count()

        def step(what: str, steps: Any = steps, death: int = death) -> None:
            if next(steps) == death:
                raise Killed

        world.step = step
        try:
            world.loop().once()
        except Killed:
            world.log.append("killed")
    world.step = lambda what: None
    loop = world.loop()
    loop.once()
    loop.once()
    assert world.sizes == {WEST.name: 3, EAST.name: 2}
    assert world.memory.resizes.keys() == {WEST.name, EAST.name}
    assert all(world.memory.resizes[name].to == size for name, size in world.sizes.items())


def test_logs_are_json_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before, levels = root.handlers[:], (root.level, logging.getLogger("infra").level)
    try:
        logs.begin(stream=stream)
        teller = logs.Teller()
        world = World()
        loop = world.loop(observers=(teller,))
        loop.once()
        world.fails["read"] = OSError("down")
        loop.once()
        world.holder = False
        loop.once()
        logging.getLogger("botocore").debug("a secret")
    finally:
        root.handlers[:] = before
        root.setLevel(levels[0])
        logging.getLogger("infra").setLevel(levels[1])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == [*["info"] * 4, "error", "info"]
    assert [line["message"] for line in lines[1:4]] == ["SetDesired: done", "SetDesired: done", "loop"]
    assert lines[1]["action"] == {
        "group": WEST.name, "was": 0, "desired": 3, "reason": "for a test", "pods": 0
    }  # fmt: skip
    assert lines[3]["actions"] == 2
    assert "OSError: down" in lines[4]["exception"]
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_what_cannot_be_read_is_logged_when_it_comes_and_goes(caplog: pytest.LogCaptureFixture) -> None:
    teller = logs.Teller()
    with caplog.at_level(logging.INFO, "infra"):
        for errors in ({"aws/us-west-2": "down"}, {"aws/us-west-2": "down still"}, {}):
            teller(Cycle(at=0.0, snapshot=make.snapshot(errors=errors)))
    lost, again = (record.getMessage() for record in caplog.records if "aws/us-west-2" in record.getMessage())
    assert lost != again


def test_a_notice_that_comes_and_goes_is_logged_once_a_day(caplog: pytest.LogCaptureFixture) -> None:
    teller = logs.Teller()
    notice = Notice("ends", "node-1", "warning", "node-1 ends")
    with caplog.at_level(logging.INFO, "infra"):
        for at, notices in (
            (0.0, [notice]),
            (10.0, [notice]),
            (20.0, []),
            (30.0, [notice]),
            (90_000.0, [notice]),
        ):
            teller(
                Cycle(at=at, decision=Decision(at=at, actions=(), memory=Memory(), notices=tuple(notices)))
            )
    assert [record.levelno for record in caplog.records if hasattr(record, "notice")] == [logging.WARNING] * 2
