"""A fault in one group or namespace holds up no other."""

from __future__ import annotations

import pytest
from autoscaler import making

from infra.autoscaler.config import Config
from infra.autoscaler.containing import contained
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Decision, SetDesired
from infra.autoscaler.memory import Memory
from infra.autoscaler.world import Snapshot

GPU = making.group(max=20)
CPU = making.cpu_group(max=20)
CONFIG = making.config(GPU, CPU)


def world() -> Snapshot:
    """Work that waits in two namespaces, and an idle machine."""
    return making.snapshot(
        [making.node(GPU, 1)],
        [
            making.pod("one", making.shape(gpus=4)),
            making.pod("two", making.shape(gpus=4)),
            making.pod("odd", making.shape(namespace="user-bob", cpu=2000)),
        ],
        [making.state(GPU, instances=1), making.state(CPU)],
    )


def failing_on(group: str = "", namespace: str = "") -> object:
    """The real answer, which stumbles over one thing."""

    def answer(snapshot: Snapshot, memory: Memory, config: Config, now: float) -> Decision:
        if group in snapshot.groups or any(pod.namespace == namespace for pod in snapshot.pods):
            raise ZeroDivisionError("nobody thought of this")
        return decide(snapshot, memory, config, now)

    return answer


def grown(decision: Decision) -> set[str]:
    return {action.group for action in decision.actions if isinstance(action, SetDesired)}


def test_33_without_a_fault_nothing_is_different() -> None:
    now = making.NOW
    assert contained(world(), Memory(), CONFIG, now) == decide(world(), Memory(), CONFIG, now)


def test_33_a_group_that_makes_no_sense_holds_up_no_other() -> None:
    found = contained(world(), Memory(), CONFIG, making.NOW, answer=failing_on(group=CPU.name))  # type: ignore[arg-type]
    assert grown(found) == {GPU.name}
    (notice,) = [each for each in found.notices if each.level == "error"]
    assert CPU.name in notice.text
    assert "nobody thought of this" in notice.text


def test_33_work_that_makes_no_sense_holds_up_no_other_namespace() -> None:
    found = contained(world(), Memory(), CONFIG, making.NOW, answer=failing_on(namespace="user-ada"))  # type: ignore[arg-type]
    assert grown(found) == {CPU.name}


def test_33_nothing_is_taken_away_in_such_a_loop() -> None:
    idle = Memory(idle={"gpu-p3-us-west-2-1": making.NOW - 10_000})
    snapshot = making.snapshot([making.node(GPU, 1)], [], [making.state(GPU, instances=1), making.state(CPU)])
    assert decide(snapshot, idle, CONFIG, making.NOW).actions
    found = contained(snapshot, idle, CONFIG, making.NOW, answer=failing_on(group=CPU.name))  # type: ignore[arg-type]
    assert found.actions == ()
    assert found.memory.idle == idle.idle


def test_33_what_is_wrong_with_everything_is_raised() -> None:
    def broken(*_: object) -> Decision:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        contained(world(), Memory(), CONFIG, making.NOW, answer=broken)
