"""The queue of machines: tickets, what is free for whom, and workers that get their GPUs together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from causeway.errors import CausewayError
from causeway.machines import leases, tickets
from causeway.machines.gang import Follower, Leader
from causeway.machines.leases import Gpu, Leases
from causeway.machines.tickets import Ticket
from causeway.machines.waiting import First, Other, Turn

A, B = Gpu(0, "GPU-a", "Tesla V100", 16384), Gpu(1, "GPU-b", "NVIDIA TITAN X", 12288)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """This machine has two GPUs, and locks of its own; what ``nvidia-smi`` says of programs may be set."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(leases, "_SHARED", (tmp_path,))
    rows = [[str(each.index), each.uuid, each.name, str(each.memory)] for each in (A, B)]
    said: dict[str, list[list[str]]] = {"--query-gpu=index,uuid,name,memory.total": rows}
    monkeypatch.setattr(leases, "_query", lambda what: said.get(what, []))
    return said


def holder(
    run: str, worker: str = "worker-0", priority: int = 0, since: float = 1.0, **more: Any
) -> dict[str, Any]:
    return {"user": leases.me(), "run": run, "worker": worker, "priority": priority, "since": since,
            "seconds": 60, **more}  # fmt: skip


def drawn(run: str, count: int = 1, model: str | None = None, **fields: Any) -> Ticket:
    ticket = Ticket(holder(run, **fields), {"count": count, "model": model, "memory": None})
    ticket.draw()
    return ticket


def free(queue: list[dict[str, Any]]) -> set[str]:
    return {A.uuid, B.uuid} - leases.taken([A, B], queue).keys()


def test_the_queue_is_by_priority_then_time_and_skips_who_is_gone() -> None:
    late, early, high = drawn("late", since=3), drawn("early", since=2), drawn("high", since=4, priority=1)
    assert [each["run"] for each in tickets.queue()] == ["high", "early", "late"]
    assert tickets.place(late.ahead(), "late")[0] == 3
    assert "early" in tickets.place(late.ahead(), "late")[1]
    # Its process died: nobody has its lock, and its file stays until its person's next ticket.
    os.close(early._file)
    assert [each["run"] for each in tickets.queue()] == ["high", "late"]
    count = len([*early._path.parent.iterdir()])
    drawn("next").drop()
    assert len([*early._path.parent.iterdir()]) == count - 1
    early._file = -1
    high.drop()
    high.draw()  # its place is the same
    assert [each["run"] for each in tickets.queue()] == ["high", "late"]
    for junk in ("1-x", ".y"):
        (late._path.parent / junk).write_text("{")
    assert tickets.place(late.ahead(), "late")[0] == 2
    late.drop()
    high.drop()
    assert tickets.queue() == []


def test_what_is_free_belongs_to_who_waits_if_it_fits() -> None:
    two, titan = drawn("two", count=2, since=1), drawn("titan", model="titan-x", since=2)
    assert free([]) == {A.uuid, B.uuid}
    assert free([titan.said]) == {A.uuid}
    assert free([two.said]) == set()
    held = Leases()
    held.take(1, {"model": "titan-x"}, holder("other"))
    assert "other" in leases.taken([A, B], [])[B.uuid]
    with pytest.raises(CausewayError, match="two"):
        Leases().take(1, {}, holder("third"), tickets.queue())
    two.drop()
    # What the first can't use is for the next.
    third = Leases()
    assert third.take(1, {}, holder("third"), tickets.queue()) == [A]
    for each in (held, third):
        each.release()
    titan.drop()


def test_a_gpu_in_use_without_a_lease_is_waited_for(machine: dict[str, list[list[str]]]) -> None:
    machine["--query-compute-apps=gpu_uuid,pid"] = [[A.uuid, str(os.getpid())]]
    turn = Turn({"count": 2, "model": None, "memory": None}, holder("x"), Leases())
    assert not turn.look()
    assert (turn.said["place"], turn.said["why"].startswith("GPU 0 ")) == (1, True)
    del machine["--query-compute-apps=gpu_uuid,pid"]
    turn._look_at = 0
    assert turn.look()
    assert turn.take()
    assert [each.index for each in turn.gpus] == [0, 1]
    assert tickets.queue() == []
    turn.back()
    assert [each["run"] for each in tickets.queue()] == ["x"]
    assert free([]) == {A.uuid, B.uuid}
    turn.ticket.drop()


def test_runs_of_a_person_are_below_their_reservation_and_keep_it_until_they_end() -> None:
    reservation, mine = Leases(), Leases()
    named = {
        "user": leases.me(),
        "run": "reserved",
        "worker": "",
        "until": time.time() + 60,
        "reserved": True,
    }
    found = reservation.take(2, {}, named)
    assert free([]) == {A.uuid, B.uuid}
    (got,) = mine.take(1, {}, holder("x"))
    assert free([]) == {A.uuid, B.uuid} - {got.uuid}
    states = leases.states([A, B])
    assert (states[got.uuid].holder["run"], bool(states[got.uuid].reserved)) == ("x", True)
    other = leases.State({}, {**named, "user": "bob"}, "", False)
    assert "bob" in other.reason(A, leases.me())
    # Its end comes before the run's.
    left = reservation.let_go(found)
    assert left == [got]
    assert leases.taken([got], []).keys() == {got.uuid}
    mine.release()
    assert reservation.let_go(left) == []
    assert not leases.states([A, B])[got.uuid].reserved
    # A second reservation is none of its runs.
    again = Leases()
    again.take(2, {}, named)
    with pytest.raises(CausewayError):
        Leases().take(1, {}, named)
    again.release()


class Gang:
    """A run of two workers, one on each GPU, as their processes have them."""

    def __init__(self, stack: ExitStack, name: str, priority: int = 0, since: float = 1.0) -> None:
        workers = {"worker-0": "one", "worker-1": "two"}
        self.leader = Leader(workers, ["worker-0"], "token", 0, 60)
        assert self.leader._listener is not None
        port = self.leader._listener.getsockname()[1]
        self.follower = Follower("worker-1", "token", f"127.0.0.1:{port}")
        self.turns = [
            Turn(
                {"count": 1, "model": model, "memory": None}, holder(name, worker, priority, since), Leases()
            )
            for model, worker in (("v100", "worker-0"), ("titan-x", "worker-1"))
        ]
        self.first = First(self.turns[0], self.leader, ["worker-1"])
        self.other = Other(self.turns[1], self.follower)
        self.begun = [False, False]
        stack.callback(self.leader.close)
        stack.callback(self.follower._line.close)
        stack.callback(self.end)

    def step(self) -> bool:
        self.leader.look("worker-0")
        for turn in self.turns:
            turn._look_at = 0.0
        self.begun[0] = self.begun[0] or self.first.step()
        self.begun[1] = self.begun[1] or self.other.step()
        return all(self.begun)

    @property
    def has(self) -> int:
        return sum(len(turn.gpus) for turn in self.turns)

    def announce(self) -> bool:
        """Whether the other worker has said that it could take its GPU."""
        self.leader.look("worker-0")
        self.other.step()
        return bool(self.leader.ready.get("worker-1"))

    def end(self) -> None:
        for turn in self.turns:
            turn._leases.release()
            turn.ticket.drop()
            turn.gpus = []


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def test_workers_of_a_run_get_their_gpus_together_or_none(stack: ExitStack) -> None:
    held = Leases()
    held.take(1, {"model": "titan-x"}, holder("other"))
    gang = Gang(stack, "gang")
    until(lambda: not gang.step() and gang.leader.ready.get("worker-1") is False)
    assert (gang.has, free([])) == (0, {A.uuid})
    assert gang.turns[0].said["ready"]
    assert gang.turns[1].said["why"]
    held.release()
    until(gang.step)
    assert (gang.has, free([]), tickets.queue()) == (2, set(), [])


def test_two_runs_that_want_the_same_of_several_machines_do_not_wait_for_each_other(stack: ExitStack) -> None:
    """The second one comes while the first one takes its GPUs, and goes before it."""
    first = Gang(stack, "first", since=1)
    until(first.announce)
    assert first.first.step() is False
    assert first.has == 1, "half of it"
    second = Gang(stack, "second", since=2, priority=1)
    until(lambda: first.step() or second.step())
    one, other = (first, second) if all(first.begun) else (second, first)
    assert (one.has, other.has) == (2, 0)
    one.end()
    until(other.step)
    assert other.has == 2


def test_a_failure_to_take_gives_back_what_the_others_took(stack: ExitStack) -> None:
    gang = Gang(stack, "gang")
    until(gang.announce)
    thief = Leases()
    thief.take(1, {"model": "titan-x"}, holder("thief"))  # by no queue
    until(lambda: gang.step() or gang.first._again)
    until(lambda: not gang.step() and gang.has == 0)
    assert len(tickets.queue()) == 2
    thief.release()
    until(gang.step)
