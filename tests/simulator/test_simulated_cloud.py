"""The model of AWS: what groups do by themselves."""

from __future__ import annotations

from collections import Counter

import pytest
from simulator.worlds import config, end, group, trace, world

from infra.autoscaler.launch_failures.status_messages import classify
from infra.autoscaler.observed.snapshot import GPU, Instance
from infra.simulator.cloud import RefusedError
from infra.simulator.conditions import Capacity, Outage
from infra.simulator.world import World


def instances(there: World, name: str = "gpu") -> tuple[Instance, ...]:
    return there.snapshot().groups[name].instances


def test_a_group_grows_evenly_over_its_zones_and_its_machines_become_nodes_with_gpus() -> None:
    there = world()
    there.set_desired("gpu", 4)
    there.advance(there.now + 10)
    assert Counter(each.zone for each in instances(there)) == {"us-west-2a": 2, "us-west-2b": 2}
    assert {each.lifecycle for each in instances(there)} == {"Pending"}
    there.advance(there.now + 105)
    nodes = there.snapshot().nodes
    assert [node.allocatable[GPU] for node in nodes] == [0] * 4
    assert {node.instance for node in nodes} == {each.id for each in instances(there)}
    there.advance(there.now + 20)
    assert [node.allocatable[GPU] for node in there.snapshot().nodes] == [4] * 4


def test_what_no_zone_has_fails_in_its_words_and_is_tried_again_later_each_time() -> None:
    there = world(capacity=(Capacity("us-west-2", 0, 500, 1),))
    there.set_desired("gpu", 3)
    there.advance(there.now + 10)
    state = there.snapshot().groups["gpu"]
    assert len(state.instances) == 1
    failed = [each for each in state.activities if each.status == "Failed"]
    assert {each.zone for each in failed} == {"us-west-2a", "us-west-2b"}

    assert {classify(each.message) for each in failed} == {"capacity"}
    there.advance(there.now + 480)  # tried after 60, 120 and 240 s more: 6, 66, 186, 426
    assert len(instances(there)) == 1
    assert len({each.start for each in there.snapshot().groups["gpu"].activities}) == 4
    there.advance(there.now + 500)  # and after 480 s, when there is some
    assert len(instances(there)) == 3


def test_one_empty_zone_leaves_the_other() -> None:
    there = world(capacity=(Capacity("us-west-2", 0, 1e6, 0, zones=("us-west-2a",)),))
    there.set_desired("gpu", 3)
    there.advance(there.now + 10)
    assert [each.zone for each in instances(there)] == ["us-west-2b"] * 3


def test_the_account_has_so_many_vcpus_and_no_more() -> None:
    limited = config(group(), quotas={"us-west-2": {"on-demand-p": 70}})
    there = World(limited, trace())
    there.set_desired("gpu", 3)
    there.advance(there.now + 10)
    state = there.snapshot().groups["gpu"]
    assert len(state.instances) == 2
    assert classify(state.activities[0].message) == "quota"


def test_a_smaller_size_ends_no_machine() -> None:
    there = world()
    there.set_desired("gpu", 2)
    there.advance(there.now + 200)
    there.set_desired("gpu", 1)
    there.advance(there.now + 100)
    assert len(instances(there)) == 2


def test_terminate_with_decrement_and_without() -> None:
    there = world()
    there.set_desired("gpu", 2)
    there.advance(there.now + 200)
    first, second = instances(there)
    end(there, first.id)
    there.advance(there.now + 60)
    assert [each.id for each in instances(there)] == [second.id]
    end(there, second.id, decrement=False)
    there.advance(there.now + 60)
    replaced = instances(there)
    assert len(replaced) == 1
    assert replaced[0].id not in (first.id, second.id)
    with pytest.raises(RefusedError):
        there.terminate(first.id)


def test_a_hook_holds_a_machine_until_it_is_released_or_an_hour_is_up() -> None:
    there = world()
    there.set_desired("gpu", 2)
    there.advance(there.now + 200)
    first, second = instances(there)
    for each in (first, second):
        there.terminate(each.id)
    there.advance(there.now + 600)
    assert {each.lifecycle for each in instances(there)} == {"Terminating:Wait"}
    there.release(first.id)
    there.advance(there.now + 60)
    assert [each.id for each in instances(there)] == [second.id]
    there.advance(there.now + 3600)
    assert instances(there) == ()
    assert there.snapshot().nodes == ()


def test_spot_machines_are_taken_away_two_minutes_after_a_notice() -> None:
    there = world([], group(spot=True), capacity=(Capacity("us-west-2", 1000, 2000, 0, spot=True),))
    there.set_desired("gpu", 1)
    there.advance(there.now + 1000)
    assert instances(there)[0].interrupted == there.now + 120
    there.advance(there.now + 119)
    assert instances(there)[0].state == "running"
    there.advance(there.now + 60)
    assert all(each.leaving for each in instances(there))


def test_a_region_that_does_not_answer_is_not_read_nor_written() -> None:
    there = world(outages=(Outage("us-west-2", 100, 200),))
    there.advance(there.now + 150)
    snapshot = there.snapshot()
    assert set(snapshot.groups) == {"far"}
    assert set(snapshot.errors) == {"aws/us-west-2"}
    with pytest.raises(RefusedError):
        there.set_desired("gpu", 1)
    there.advance(there.now + 60)
    there.set_desired("gpu", 1)


def test_machines_are_paid_for_from_launch_to_end() -> None:
    there = world()
    there.set_desired("gpu", 1)
    there.advance(there.now + 6 + 1800)
    cost, gpus = there.cloud.bill()
    assert cost == pytest.approx(6.0)
    assert gpus == pytest.approx(2.0)
    end(there, instances(there)[0].id)
    there.advance(there.now + 3600)
    assert there.cloud.bill() == pytest.approx((6.0, 2.0))


def test_a_stillborn_machine_never_becomes_a_node() -> None:
    there = world(stillborn=1.0)
    there.set_desired("gpu", 2)
    there.advance(there.now + 3600)
    assert len(instances(there)) == 2
    assert there.snapshot().nodes == ()


def test_a_node_is_forgotten_after_its_machine() -> None:
    there = world()
    there.set_desired("gpu", 1)
    there.advance(there.now + 200)
    end(there, instances(there)[0].id)
    there.advance(there.now + 50)
    assert [node.ready for node in there.snapshot().nodes] == [False]
    there.advance(there.now + 50)
    assert there.snapshot().nodes == ()
