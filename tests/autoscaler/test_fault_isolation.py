"""A fault in one group or namespace holds up no other."""

from __future__ import annotations

import pytest
from autoscaler import make

from infra.autoscaler.config import Config
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Decision, SetDesired
from infra.autoscaler.fault_isolation import isolated
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.snapshot import Snapshot

GPU = make.group(max=20)
CPU = make.cpu_group(max=20)
CONFIG = make.config(GPU, CPU)


def world() -> Snapshot:
    """Work that waits in two namespaces, and an idle machine."""
    return make.snapshot(
        [make.node(GPU, 1)],
        [
            make.pod("one", make.shape(gpus=4)),
            make.pod("two", make.shape(gpus=4)),
            make.pod("odd", make.shape(namespace="user-bob", cpu=2000)),
        ],
        [make.state(GPU, instances=1), make.state(CPU)],
    )


def failing_on(group: str = "", namespace: str = "") -> object:
    """The real answer, which stumbles over one thing."""

    def answer(snapshot: Snapshot, memory: Memory, config: Config, now: float) -> Decision:
        if group in snapshot.groups or any(pod.namespace == namespace for pod in snapshot.pods):
            raise ZeroDivisionError("odd")
        return decide(snapshot, memory, config, now)

    return answer


def grown(decision: Decision) -> set[str]:
    return {action.group for action in decision.actions if isinstance(action, SetDesired)}


def test_33_without_a_fault_nothing_is_different() -> None:
    now = make.NOW
    assert isolated(world(), Memory(), CONFIG, now) == decide(world(), Memory(), CONFIG, now)


def test_33_a_group_that_makes_no_sense_holds_up_no_other() -> None:
    found = isolated(world(), Memory(), CONFIG, make.NOW, answer=failing_on(group=CPU.name))  # type: ignore[arg-type]
    assert grown(found) == {GPU.name}
    (notice,) = [each for each in found.notices if each.level == "error"]
    assert CPU.name in notice.text
    assert "ZeroDivisionError: odd" in notice.text


def test_33_work_that_makes_no_sense_holds_up_no_other_namespace() -> None:
    found = isolated(world(), Memory(), CONFIG, make.NOW, answer=failing_on(namespace="user-ada"))  # type: ignore[arg-type]
    assert grown(found) == {CPU.name}


def test_33_nothing_is_taken_away_in_such_a_loop() -> None:
    idle = Memory(idle={"gpu-p3-us-west-2-1": make.NOW - 10_000})
    snapshot = make.snapshot([make.node(GPU, 1)], [], [make.state(GPU, instances=1), make.state(CPU)])
    assert decide(snapshot, idle, CONFIG, make.NOW).actions
    found = isolated(snapshot, idle, CONFIG, make.NOW, answer=failing_on(group=CPU.name))  # type: ignore[arg-type]
    assert found.actions == ()
    assert found.memory.idle == idle.idle


def test_33_what_is_wrong_with_everything_is_raised() -> None:
    def broken(*_: object) -> Decision:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        isolated(world(), Memory(), CONFIG, make.NOW, answer=broken)
