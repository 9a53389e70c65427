"""Worlds in which machines boot while pods wait, some of which must be in one region or pool; and what is
asked for in them, loop by loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from autoscaler.make import GI, GPU_TAINT, NOW, changed, config, group, instance, pod, shape, snapshot, state

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import SetDesired
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.snapshot import GPU, PODS, Instance, Pod, Snapshot

_SMALL: Final = PricedType("p3.2xlarge", 1, 8, 3.06, 0.92, "on-demand-p", "spot-p")


def one(site: str = "us-west-2", **more: Any) -> Group:
    """A group of p3.2xlarge, with a GPU each."""
    offers = {"cpu": 7500, "memory": 57 * GI, PODS: 58, GPU: 1}
    return group(site, "one", types=(_SMALL,), allocatable=offers, taints=(GPU_TAINT,), **more)


def world(seed: int) -> tuple[Config, list[Pod], dict[str, int]]:
    """Groups in up to three regions, pods that wait, and how many machines of each group boot."""
    chance = Random(seed)
    regions = chance.sample(["us-west-2", "us-east-1", "eu-west-1"], chance.randint(1, 3))
    groups = []
    for region in regions:
        groups.append(group(region, max=200))
        if chance.random() < 0.5:
            groups.append(one(region, max=200))
    waiting = []
    for number in range(chance.randint(1, 6)):
        place = ("causeway.dev/site", chance.choice(regions))
        pool = ("causeway.dev/pool", chance.choice(("gpu-p3", "one")))
        like = shape(
            gpus=chance.choice((1, 1, 2, 4)),
            cpu=chance.choice((500, 1500)),
            selector=chance.choice(((), (), (place,), (pool,))),
            priority=chance.choice((0, 0, 0, 1000)),
        )
        waiting += [
            pod(f"p{number}-{n}", like, created=NOW - 60 + number) for n in range(chance.randint(1, 25))
        ]
    return config(*groups), waiting, {each.name: chance.choice((0, 0, 1, 2, 5)) for each in groups}


def seen(of: Config, waiting: list[Pod], sizes: Mapping[str, int], at: float = NOW) -> Snapshot:
    """Pods that wait, and so many machines of each group that boot."""
    groups = [state(each, sizes[each.name], _booting(each, sizes[each.name])) for each in of.groups]
    return snapshot([], waiting, groups, at=at)


def _booting(of: Group, count: int) -> list[Instance]:
    more: dict[str, Any] = {"zone": of.zones[0], "lifecycle": "Pending", "launched": NOW - 60}
    return [instance(of, number, **more) for number in range(1, count + 1)]


def bought(
    of: Config, waiting: list[Pod], sizes: Mapping[str, int], loops: Iterable[int] = range(20)
) -> list[dict[str, int]]:
    """Group → its new size, for each of these loops; what is asked for boots, and never is up."""
    memory, grown_by_loop = Memory(), []
    snapshot_now: Snapshot | None = None
    for loop in loops:
        now = NOW + 10 * loop
        snapshot_now = (
            changed(snapshot_now, at=now) if snapshot_now is not None else seen(of, waiting, sizes, now)
        )
        decision = decide(snapshot_now, memory, of, now)
        memory = decision.memory
        grown = {a.group: a.desired for a in decision.actions if isinstance(a, SetDesired)}
        if grown:
            sizes, snapshot_now = {**sizes, **grown}, None
        grown_by_loop.append(grown)
    return grown_by_loop
