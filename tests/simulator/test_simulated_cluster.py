"""The model of Kubernetes' scheduler and of jobs."""

from __future__ import annotations

from simulator.worlds import end, group, job, world

from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import Pod
from infra.simulator.world import World


def on(there: World) -> dict[str, str]:
    """Pod → node."""
    return {pod.name: pod.node for pod in there.snapshot().pods}


def grown(there: World, size: int, name: str = "gpu") -> World:
    there.set_desired(name, size)
    there.advance(there.now + 200)
    return there


def test_pods_fill_one_node_before_the_next() -> None:
    there = grown(world([job(pods=6)]), 3)
    nodes = sorted(on(there).values())
    assert len(set(nodes)) == 2
    assert nodes.count(nodes[0]) in (2, 4)


def test_higher_priority_goes_first_and_what_fits_passes_what_does_not() -> None:
    there = world(
        [
            job("old", pods=2, gpus=3, seconds=9000),
            job("urgent", 1, gpus=2, priority=10),
            job("small", 2, gpus=1),
        ]
    )
    placed = on(grown(there, 1))
    assert placed["urgent-0"]
    assert placed["small-0"]
    assert not placed["old-0"]


def test_a_gang_has_all_its_places_at_one_site_or_none() -> None:
    there = world([job("gang", pods=4, gpus=4, gang=True)])
    there.set_desired("gpu", 2)
    there.set_desired("far", 2)
    there.advance(there.now + 200)
    assert set(on(there).values()) == {""}
    grown(there, 4)
    nodes = {node.name: node.labels["causeway.dev/site"] for node in there.snapshot().nodes}
    assert {nodes[each] for each in on(there).values()} == {"us-west-2"}


def test_a_gang_that_may_stands_at_several_sites() -> None:
    there = world([job("gang", pods=4, gpus=4, gang=True, across=True)])
    there.set_desired("gpu", 2)
    there.set_desired("far", 2)
    there.advance(there.now + 200)
    assert all(on(there).values())


def test_selectors_and_taints_are_heeded() -> None:
    there = world(
        [
            job("far", labels={"causeway.dev/site": "us-east-1"}),
            job("processor", gpus=0),
            job("late", 300),
        ]
    )
    grown(there, 1)
    assert set(on(there).values()) == {""}  # one wants another site, one does not stand the GPUs' taint
    name = there.snapshot().nodes[0].name
    there.taint(name, Taint("causeway.dev/scale-in"))
    there.advance(there.now + 200)
    assert on(there)["late-0"] == ""
    there.untaint(name, "causeway.dev/scale-in")
    assert on(there)["late-0"] == name


def test_a_job_takes_its_time_and_is_gone() -> None:
    there = grown(world([job(seconds=1000)]), 1)
    account = there.jobs.account
    began = account.waits[0]
    assert began == 6 + 100 + 20
    there.advance(there.calendar.start + began + 999)
    assert len(there.snapshot().pods) == 1
    there.advance(there.calendar.start + began + 1001)
    assert there.snapshot().pods == ()
    assert account.finished == 1
    assert account.delays == [126]


def lost_pod(there: World) -> Pod:
    return next(pod for pod in there.snapshot().pods if pod.node)


def test_work_that_is_lost_starts_over_or_from_its_last_save() -> None:
    for checkpoint, computed in ((0, 0), (400, 800)):
        there = grown(world([job(seconds=2000, checkpoint=checkpoint)]), 1)
        there.advance(there.calendar.start + 126 + 1000)
        end(there, there.snapshot().groups["gpu"].instances[0].id, decrement=False)
        there.advance(there.now + 10000)
        account = there.jobs.account
        assert there.ended_busy == {"asked": 1}
        assert account.restarts == 1
        assert account.lost_gpu_seconds == 1000 - computed
        # The end, and a new machine with its GPUs; the time until then and what was lost is delay.
        assert account.delays == [126 + 126 + 1000 - computed]


def test_work_that_is_asked_to_leave_saves_if_it_saves_at_all() -> None:
    there = grown(world([job(seconds=2000, checkpoint=900)]), 2)
    there.advance(there.calendar.start + 126 + 1000)
    pod = lost_pod(there)
    there.evict(pod.uid)
    assert lost_pod(there).deleting
    there.advance(there.now + 100)
    assert lost_pod(there).uid != pod.uid
    assert there.jobs.account.lost_gpu_seconds == 0


def test_a_gang_that_loses_one_starts_over_as_a_whole() -> None:
    there = grown(world([job(pods=3, gpus=4, gang=True, seconds=2000)]), 3)
    before = {pod.uid for pod in there.snapshot().pods}
    there.evict(sorted(before)[0])
    there.advance(there.now + 60)
    after = {pod.uid for pod in there.snapshot().pods}
    assert len(after) == 3
    assert not before & after
    assert set(there.snapshot().gangs) == {"Job/user-somebody/train"}
    there.advance(there.now + 3000)
    assert there.snapshot().gangs == {}


def test_a_processor_machine_takes_what_asks_for_no_gpus() -> None:
    plain = group("cpu", taints=(), allocatable={"cpu": 8000, "memory": 32 << 30, "pods": 110})
    there = world([job(gpus=0)], plain)
    assert all(on(grown(there, 1, "cpu")).values())
