"""Flavors: closed while no region has a machine of their pool, and open as soon as one may have."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler.make import NOW, config, cpu_group, gang, group, node, pods, snapshot, state
from msgspec import structs

from infra.autoscaler import decide as deciding
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Answer, Decision, HoldFlavor
from infra.autoscaler.memory import Backoff, Booking, Memory
from infra.autoscaler.observed.snapshot import Flavor
from infra.catalogue.labels import POOL

WEST, EAST, CPU = group(), group("us-east-1"), cpu_group()
OF = config(WEST, EAST, CPU)
OPEN = {WEST.pool: Flavor(WEST.pool, WEST.pool), "physical.titan": Flavor("physical.titan")}
CLOSED = {**OPEN, WEST.pool: Flavor(WEST.pool, WEST.pool, held=True)}


def barred(*names: str, until: float = NOW + 600) -> Memory:
    bar = Backoff("capacity", "none", NOW - 1, NOW - 1, until, 1)
    return Memory(backoffs=dict.fromkeys(names, bar))


def decided(memory: Memory, *, now: float = NOW, of: Config = OF, **more: Any) -> Decision:
    more.setdefault("flavors", OPEN)
    more.setdefault("of", of)
    return deciding.decide(snapshot(**more), memory, of, now)


def holds(decision: Decision) -> list[tuple[str, bool]]:
    return [(each.flavor, each.held) for each in decision.actions if isinstance(each, HoldFlavor)]


def answers(decision: Decision) -> list[tuple[str, str]]:
    return [(each.condition, each.reason) for each in decision.actions if isinstance(each, Answer)]


def request(**more: Any) -> Any:
    """What Kueue asks for: a job of one pod, in the flavor of the pool."""
    like = pods(1, gpus=4, selector=((POOL, WEST.pool),))[0].shape
    return gang(count=1, like=like, kind="ProvisioningRequest", condition="Accepted", **more)


def test_a_pool_without_capacity_in_any_region_is_closed_and_its_requests_fail() -> None:
    found = decided(barred(WEST.name, EAST.name), gangs=[request()])
    assert holds(found) == [(WEST.pool, True)]
    assert answers(found) == [("Failed", "NoCapacity")]
    (hold,) = (each for each in found.actions if isinstance(each, HoldFlavor))
    assert "us-west-2: " in hold.reason
    assert "us-east-1: " in hold.reason


def test_with_one_region_left_it_starts_there() -> None:
    found = decided(barred(WEST.name), gangs=[request()])
    assert holds(found) == []
    assert answers(found) == []
    assert [each for each in found.actions if getattr(each, "group", "") == EAST.name]


def test_a_region_that_is_full_is_no_way_out() -> None:
    full = [state(WEST), state(EAST, EAST.max, EAST.max), state(CPU)]
    busy = [node(EAST, number) for number in range(1, EAST.max + 1)]
    work = [
        each
        for number, machine in enumerate(busy)
        for each in pods(1, f"other-{number}", gpus=4, node=machine.name)
    ]
    found = decided(barred(WEST.name), nodes=busy, pods=work, groups=full, gangs=[request()])
    assert holds(found) == [(WEST.pool, True)]


def test_a_machine_that_nobody_uses_keeps_it_open() -> None:
    one = [state(WEST, 1, 1), state(EAST), state(CPU)]
    found = decided(barred(WEST.name, EAST.name), nodes=[node(WEST, 1)], groups=one)
    assert holds(found) == []


def test_a_machine_that_is_booked_does_not() -> None:
    like = request().sets[0].shape
    other = gang("other", count=1, like=like, kind="ProvisioningRequest", condition="Provisioned")
    booking = Booking((node(WEST, 1).name,), NOW + 60)
    memory = structs.replace(barred(WEST.name, EAST.name), bookings={other.key: booking})
    one = [state(WEST, 1, 1), state(EAST), state(CPU)]
    found = decided(memory, nodes=[node(WEST, 1)], groups=one, gangs=[other, request()])
    assert holds(found) == [(WEST.pool, True)]
    assert answers(found) == [("Failed", "NoCapacity")]


@pytest.mark.parametrize("now", [NOW + 601, NOW + 5000])
def test_it_is_open_again_when_a_region_may_have_machines(now: float) -> None:
    memory = barred(WEST.name, EAST.name)
    assert holds(decided(memory, flavors=CLOSED)) == []
    assert holds(decided(memory, now=now, flavors=CLOSED)) == [(WEST.pool, False)]


def test_without_kueue_nothing_is_closed_and_a_request_waits() -> None:
    found = decided(barred(WEST.name, EAST.name), flavors={}, gangs=[request()])
    assert holds(found) == []
    assert answers(found) == []


def test_a_request_that_names_no_pool_waits() -> None:
    anybody = gang(count=1, gpus=4, kind="ProvisioningRequest", condition="Accepted")
    assert answers(decided(barred(WEST.name, EAST.name), gangs=[anybody])) == []
