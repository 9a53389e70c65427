"""The simulated world with Kueue in it: requests, back-off, topology, machines that are lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from golden_clusters import golden
from msgspec.structs import replace
from simulator.worlds import config, end, group, job, trace

from infra.autoscaler.config import Config, Group
from infra.autoscaler.observed.snapshot import PODS
from infra.commands.autoscaler import simulating
from infra.errors import UsageError
from infra.render.kubernetes import queue_policies, queues
from infra.render.kubernetes.charts.queues import configuration
from infra.simulator import kueue, run
from infra.simulator.conditions import Capacity
from infra.simulator.kueue import Kueue
from infra.simulator.runner import Result
from infra.simulator.trace import Trace
from infra.simulator.world import World

HOUR = 3600.0


def east(name: str = "gpu-east", pool: str = "gpu", **more: Any) -> Group:
    """The same pool in another region."""
    site = "us-east-1"
    labels = {"causeway.dev/site": site, "causeway.dev/pool": pool}
    return group(name, site, order=1, pool=pool, labels=labels, **more)


def seen(settings: Config, asked: Trace, until: float = 4 * HOUR) -> tuple[Result, World, Kueue]:
    there = World(settings, asked, rules=kueue.of_groups(settings.groups))
    assert there.kueue is not None
    return run(settings, asked, world=there, until=until), there, there.kueue


def sizes(there: World) -> dict[str, int]:
    return {name: each.desired for name, each in there.snapshot().groups.items()}


def test_a_job_begins_as_a_whole_once_its_machines_are_up() -> None:
    result, _, found = seen(config(), trace(job(pods=8)))
    # Nodes with GPUs are there after 126 s; the next loop says so, and the pods are made.
    assert result.waits == (130,) * 8
    assert result.finished == 8
    assert not found.requests
    assert not found.evictions


def test_without_capacity_in_a_region_the_request_goes_to_the_next() -> None:
    asked = trace(job(pods=8), capacity=(Capacity("us-west-2", 0, HOUR, 1),))
    result, there, found = seen(config(group(), east()), asked, until=600)
    nodes = {node.name: node.labels["causeway.dev/site"] for node in there.snapshot().nodes}
    assert {nodes[pod.node] for pod in there.snapshot().pods} == {"us-east-1"}
    assert sizes(there)["gpu-east"] == 2
    assert not found.evictions
    assert max(result.waits) <= 130 + 20


def test_without_capacity_in_any_region_kueue_gives_the_next_pool() -> None:
    here = tuple(Capacity(region, 0, HOUR, 0, type="p3.8xlarge") for region in ("us-west-2", "us-east-1"))
    other = group("other", kind="p3.16xlarge", priority=-1)
    result, there, found = seen(config(group(), east(), other), trace(job(pods=8), capacity=here), until=250)
    assert found.evictions == {"Failed": 1}
    assert found.admission.held == {"gpu"}
    assert sizes(there) == {"gpu": 0, "gpu-east": 0, "other": 2}
    # Two refusals, the back-off of 10 s, another boot.
    assert 130 + 20 + 10 <= max(result.waits) <= 130 + 50


def test_jobs_wait_for_quota_and_are_not_seen_before() -> None:
    settings = config(group(max=1))
    result, there, _ = seen(settings, trace(job("first", gpus=4), job("second", 10, gpus=4)), until=1000)
    assert sizes(there) == {"gpu": 1}
    assert there.waiting == 1
    assert len(there.snapshot().gangs) == 1
    result, _, _ = seen(settings, trace(job("first", gpus=4), job("second", 10, gpus=4)))
    assert result.finished == 2


def lose_a_machine(pods: int, spare: int) -> tuple[World, Kueue]:
    """A job of single GPUs on machines of four, of which one dies, with some more machines idle."""
    settings = config(group(max=4), idle=9000)
    asked = trace(job(pods=pods, seconds=2 * HOUR, checkpoint=60))
    there = World(settings, asked, rules=kueue.of_groups(settings.groups))
    run(settings, asked, world=there, until=300)
    there.set_desired("gpu", pods // 4 + spare)
    there.advance(there.now + 200)
    busy = next(pod.node for pod in there.snapshot().pods)
    instance = next(each.instance for each in there.snapshot().nodes if each.name == busy)
    end(there, instance)
    assert busy not in {pod.node for pod in there.snapshot().pods}
    there.advance(there.now + 30)
    assert there.kueue is not None
    return there, there.kueue


def test_pods_of_a_lost_machine_go_to_another_of_their_flavor() -> None:
    there, found = lose_a_machine(8, spare=1)
    assert not found.evictions
    assert all(pod.node for pod in there.snapshot().pods)
    assert len(there.snapshot().pods) == 8


def test_without_room_for_them_the_whole_job_queues_again() -> None:
    there, found = lose_a_machine(8, spare=0)
    assert found.evictions == {"node": 1}
    there.advance(there.now + 60)
    assert there.snapshot().pods == ()
    (gang,) = there.snapshot().gangs.values()
    assert (gang.condition, gang.sets[0].count) == ("", 8)


def test_pods_that_do_not_run_in_time_give_their_quota_back() -> None:
    plain = group(allocatable={"cpu": 30000, "memory": 200 << 30, PODS: 110}, taints=())
    asked = trace(job(gpus=0), capacity=(Capacity("us-west-2", 0, 2000, 0),))
    result, _, found = seen(config(plain), asked)
    assert found.evictions == {"not ready": 1}
    assert result.finished == 1


def test_the_rendered_rules_are_read() -> None:
    cluster = golden("research")
    found = simulating.rules(cluster)
    assert found is not None
    assert [each.flavor.name for each in found.choices] == [each.name for each in queues.flavors(cluster)]
    assert {each.flavor.name for each in found.choices if each.checked} == {
        each.name for each in queues.flavors(cluster) if each.cloud and each.amount.gpus
    }
    assert found.queue_of("user-ada") in found.queues
    assert found.queue_of("user-nobody") == "shared"
    total = {each.name: each.amount.gpus for each in queues.flavors(cluster)}
    assert {name: each["nvidia.com/gpu"] for name, each in found.total.items()} == total


def test_other_policies_than_the_rendered_ones_are_refused() -> None:
    cluster = golden("research")
    objects = [each for some in queues.objects(cluster).values() for each in some]
    settings, pools = configuration(cluster), queue_policies.sizes(cluster)
    kueue.read(objects, settings, pools, {})
    other = copy.deepcopy(objects)
    next(each for each in other if each["kind"] == "ClusterQueue")["spec"]["queueingStrategy"] = "StrictFIFO"
    with pytest.raises(UsageError, match="StrictFIFO"):
        kueue.read(other, settings, pools, {})
    with pytest.raises(UsageError, match="preemptionStrategies"):
        kueue.read(objects, {**settings, "fairSharing": {}}, pools, {})


def test_who_used_much_lately_comes_later() -> None:
    settings = config(group(max=1))
    rules = replace(kueue.of_groups(settings.groups), half_life=HOUR, weights={"cpu": 0, "memory": 0})
    asked = trace(
        job("first", gpus=4, user="ada"),
        job("again", 10, gpus=4, user="ada"),
        job("other", 20, gpus=4, user="alan"),
    )
    there = World(settings, asked, rules=rules)
    result = run(settings, asked, world=there, until=1.4 * HOUR)
    assert result.finished == 2
    assert [pod.owner.name for pod in there.snapshot().pods if pod.owner] == ["again"]
