"""Machines that stand idle for whoever comes: started, and no more of them than were asked for."""

from __future__ import annotations

from autoscaler.make import NOW, changed, config, group, instance, node, pod, snapshot, state

from infra.autoscaler.config import Config
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import SetDesired
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.observed.snapshot import Node, Pod, Snapshot

WEST = group()
EAST = group("us-east-1", zones=("us-east-1a",))


def sizes(seen: Snapshot, of: Config, memory: Memory | None = None) -> dict[str, int]:
    """Group → its new size."""
    actions = decide(seen, memory or Memory(), of, NOW).actions
    return {each.group: each.desired for each in actions if isinstance(each, SetDesired)}


def up(count: int, *pods: Pod, coming: int = 0, of: Config) -> Snapshot:
    """So many ready machines of the first group, and so many more that are asked for."""
    nodes: list[Node] = [node(WEST, number) for number in range(1, count + 1)]
    return snapshot(nodes, pods, [state(WEST, count + coming, count), state(EAST, 0)], of=of)


def test_what_is_lacking_is_started_once() -> None:
    of = config(WEST, EAST, spare={WEST.pool: 2})
    assert sizes(up(0, of=of), of) == {WEST.name: 2}
    assert sizes(up(1, of=of), of) == {WEST.name: 2}
    # What is on its way, and what stands there, is not asked for again.
    assert sizes(up(0, coming=2, of=of), of) == {}
    assert sizes(up(1, coming=1, of=of), of) == {}
    assert sizes(up(2, of=of), of) == {}
    boots = instance(WEST, 2, launched=NOW - 60)
    seen = snapshot([node(WEST)], (), [state(WEST, 2, [instance(WEST), boots]), state(EAST, 0)], of=of)
    assert sizes(seen, of) == {}


def test_work_takes_them_and_others_come_in_their_place() -> None:
    of = config(WEST, EAST, spare={WEST.pool: 1})
    waits = pod("train", gpus=4)
    assert sizes(up(1, waits, of=of), of) == {WEST.name: 2}
    runs = pod("train", gpus=4, node=node(WEST).name)
    assert sizes(up(1, runs, of=of), of) == {WEST.name: 2}
    assert sizes(up(0, waits, of=of), of) == {WEST.name: 2}


def test_within_all_limits_and_where_they_can_be_had() -> None:
    small = changed(WEST, max=1)
    of = config(small, EAST, spare={WEST.pool: 3})
    empty = snapshot((), (), [changed(state(WEST, 0), max=1), state(EAST, 0)], of=of)
    assert sizes(empty, of) == {WEST.name: 1, EAST.name: 2}
    poor = config(small, EAST, spare={WEST.pool: 3}, max_hourly_cost=13.0)
    assert sizes(empty, poor) == {WEST.name: 1}
    off = Memory(backoffs={WEST.name: Backoff("capacity", "", NOW - 60, NOW - 60, NOW + 600, 1)})
    of = config(WEST, EAST, spare={WEST.pool: 1})
    assert set(sizes(up(0, of=of), of, off)) == {EAST.name}


def test_without_any_nothing_is_started() -> None:
    of = config(WEST, EAST)
    assert sizes(up(0, of=of), of) == {}
    assert sizes(up(0, of=of), config(WEST, EAST, spare={"another": 2})) == {}
