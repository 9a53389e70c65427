"""The models of the peers do what their modules say."""

from __future__ import annotations

from simulator.worlds import config, group, job, trace

from benchmarks.autoscaler.peers.cluster_autoscaler import ClusterAutoscaler, Everywhere
from benchmarks.autoscaler.peers.design_2016 import Design
from infra.autoscaler.config import Config
from infra.simulator import run
from infra.simulator.conditions import Capacity
from infra.simulator.kueue import of_groups
from infra.simulator.policy import Policy
from infra.simulator.runner import Result
from infra.simulator.trace import Trace
from infra.simulator.world import World

HOUR = 3600.0


def seen(
    settings: Config, asked: Trace, policy: Policy, until: float, *, queued: bool = False
) -> tuple[Result, World]:
    rules = of_groups(settings.groups) if queued else None
    there = World(settings, asked, hooks=policy.hooks, protects=policy.protects, rules=rules)
    return run(settings, asked, policy, world=there, until=until), there


def size(there: World, name: str = "gpu") -> int:
    return there.snapshot().groups[name].desired


def test_the_2016_design_over_provisions_by_five() -> None:
    settings = config()
    _, there = seen(settings, trace(job(pods=2, gpus=4)), Design(settings), 300)
    assert size(there) == 2 + 5


def test_the_2016_design_moves_on_and_comes_back_a_loop_later() -> None:
    settings = config()
    asked = trace(job(gpus=4, seconds=60), capacity=(Capacity("us-west-2", 0, HOUR, 0),))
    _, there = seen(settings, asked, Design(settings), 110)
    assert (size(there), size(there, "far")) == (0, 6)  # the failure is seen in the second loop
    _, there = seen(settings, asked, Design(settings), 170)
    assert size(there) == 6  # the hour has lasted a loop
    _, there = seen(settings, asked, Design(settings, mended=True), 170)
    assert size(there) == 0


def test_the_2016_design_ends_nothing_once_too_much_is_idle() -> None:
    settings = config(group(max=40))
    asked = trace(job(pods=30, gpus=4))
    stuck, _ = seen(settings, asked, Design(settings), 8 * HOUR)
    mended, _ = seen(settings, asked, Design(settings, mended=True), 8 * HOUR)
    assert stuck.left > 20
    assert mended.left <= 5  # which it keeps for a week


def test_cluster_autoscaler_waits_half_a_minute_for_more_pods_with_cards() -> None:
    settings = config()
    result, _ = seen(settings, trace(job(gpus=4)), ClusterAutoscaler(settings), HOUR)
    assert result.waits == (30 + 126,)


def test_cluster_autoscaler_grows_one_group_a_loop() -> None:
    settings = config(group(), group("other"))
    jobs = [job(f"{name}-job", labels={"causeway.dev/pool": name}) for name in ("gpu", "other")]
    result, _ = seen(settings, trace(*jobs), ClusterAutoscaler(settings), HOUR)
    assert result.waits == (30 + 126, 40 + 126)


def test_cluster_autoscaler_stays_in_its_region_and_tries_again_after_its_back_off() -> None:
    settings = config()
    asked = trace(job(gpus=4), capacity=(Capacity("us-west-2", 0, HOUR, 0),))
    result, there = seen(settings, asked, ClusterAutoscaler(settings), 3 * HOUR)
    assert size(there, "far") == 0
    assert HOUR < result.waits[0] < 2 * HOUR
    result, there = seen(settings, asked, Everywhere(settings), 0.2 * HOUR)
    assert result.waits == (30 + 126,)  # the far one buys as well, at the same time


def test_cluster_autoscaler_ends_idle_machines_ten_at_a_time_after_ten_minutes() -> None:
    settings = config(group(max=40))
    asked = trace(job(pods=25, gpus=4, seconds=HOUR))
    over = 30 + 126 + HOUR  # they are first seen idle in the loop after it

    def ended(seconds: float) -> int:
        _, there = seen(settings, asked, ClusterAutoscaler(settings), over + seconds)
        return there.writes["TerminateInstance"]

    assert [ended(seconds) for seconds in (595, 610, 620, 630)] == [0, 10, 20, 25]


def test_cluster_autoscaler_moves_work_that_nobody_marked() -> None:
    settings = config()
    jobs = [
        job("long", gpus=1, seconds=4 * HOUR),
        job("short", gpus=3, seconds=1000),
        job("other", 10, gpus=2, seconds=4 * HOUR),
    ]
    marked, _ = seen(settings, trace(*jobs), ClusterAutoscaler(settings), 4.5 * HOUR)
    moved, _ = seen(settings, trace(*jobs), ClusterAutoscaler(settings, marked=False), 4.5 * HOUR)
    assert marked.restarts == 0
    assert moved.restarts > 0


def test_cluster_autoscaler_ends_machines_that_never_register() -> None:
    settings = config()
    _, there = seen(settings, trace(job(), stillborn=1.0), ClusterAutoscaler(settings), 1100)
    assert there.writes["TerminateInstance"] == 1


def test_cluster_autoscaler_provisions_a_request_before_its_machines_are_up() -> None:
    settings = config()
    policy = ClusterAutoscaler(settings, requests=True)
    _, there = seen(settings, trace(job(pods=8)), policy, 20, queued=True)
    assert (size(there), there.cluster.hosts) == (2, {})
    (gang,) = there.snapshot().gangs.values()
    assert gang.condition == "Provisioned"
    result, _ = seen(settings, trace(job(pods=8)), policy := ClusterAutoscaler(settings, requests=True), HOUR,
                     queued=True)  # fmt: skip
    # Kueue looks for a place 1, 2, 4 … 30 seconds apart.
    assert 126 <= result.waits[0] == result.waits[-1] <= 126 + 30
    assert policy.name == "Cluster Autoscaler, us-west-2, with Kueue"


def test_cluster_autoscaler_looks_at_one_request_a_loop() -> None:
    settings = config()
    jobs = [job("one", gpus=4), job("two", gpus=4)]
    _, there = seen(settings, trace(*jobs), ClusterAutoscaler(settings, requests=True), 5, queued=True)
    assert size(there) == 1
    _, there = seen(settings, trace(*jobs), ClusterAutoscaler(settings, requests=True), 15, queued=True)
    assert size(there) == 2


def test_a_request_without_capacity_expires_and_is_asked_for_anew() -> None:
    settings = config()
    asked = trace(job(gpus=4), capacity=(Capacity("us-west-2", 0, HOUR, 0),))
    _, there = seen(settings, asked, ClusterAutoscaler(settings, requests=True), 0.5 * HOUR, queued=True)
    assert there.kueue is not None
    assert there.kueue.evictions["BookingExpired"] >= 1
    assert size(there, "far") == 0
    assert there.kueue.admission.held == set()
    result, there = seen(settings, asked, Everywhere(settings, requests=True), 0.5 * HOUR, queued=True)
    assert result.waits[0] == 0.5 * HOUR, "a flavor is a pool, and nobody told Kueue to take the other"
    result, _ = seen(settings, asked, ClusterAutoscaler(settings, requests=True), 3 * HOUR, queued=True)
    assert HOUR < result.waits[0] < 2 * HOUR
