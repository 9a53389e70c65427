"""The loop of the simulated autoscaler, and its result."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.autoscaler.config import Config
from infra.simulator.kueue import Rules
from infra.simulator.policy import Ours
from infra.simulator.trace import Trace
from infra.simulator.world import World

TAIL = 86400.0
"""Seconds after the last submission at which a run ends by default."""
SAMPLES = 1500


@dataclass(frozen=True, slots=True)
class Sample:
    """An interval of a run; values that change in it are maxima."""

    at: float
    """Its start: seconds from the start of the run."""
    waiting: int
    """Pods without a node."""
    machines: int
    """Billed cloud machines."""
    spent: float = 0.0
    """USD up to its start."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a trace. Waits and delays are lists of seconds, one per pod, sorted."""

    policy: str
    waits: tuple[float, ...]
    """From submission to the first start; for pods that never started, to the end of the run."""
    delays: tuple[float, ...]
    """From submission to the end, less the computing time."""
    pods: int
    finished: int
    cost: float
    """USD, of cloud machines."""
    used: float
    """GPU-hours of work that was not lost, on cloud and physical machines."""
    bought: float
    """GPU-hours of cloud machines."""
    lost: float
    """GPU-hours of lost work."""
    restarts: int
    """Of pods."""
    ended_busy: Mapping[str, int]
    """Machines terminated with work on them, by reason: ``asked`` (the policy), ``interrupted`` (AWS),
    ``timeout`` (of a lifecycle hook)."""
    launches: int
    failed: int
    """Failed launches."""
    left: int
    """Cloud machines above the groups' minimum sizes at the end."""
    writes: Mapping[str, int]
    loops: int
    """Loops that were run, without those in which nothing could have changed."""
    seconds: float
    """Real time in seconds."""
    simulated: float
    """Simulated seconds."""
    samples: tuple[Sample, ...] = field(repr=False, default=())

    @property
    def by_choice(self) -> int:
        """Machines with work that the policy terminated."""
        return sum(count for why, count in self.ended_busy.items() if why != "interrupted")

    @property
    def mean(self) -> float:
        """The mean waiting time of a pod in seconds."""
        return sum(self.waits) / len(self.waits) if self.waits else 0.0

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the pods had started (nearest rank)."""
        return _quantile(self.waits, share)

    def delay(self, share: float) -> float:
        """The same for delays of finished pods."""
        return _quantile(self.delays, share)


def run(
    config: Config,
    trace: Trace,
    policy: Ours | None = None,
    *,
    until: float | None = None,
    world: World | None = None,
    rules: Rules | None = None,
) -> Result:
    """Run a trace up to a time, in seconds from its start. ``rules``: Kueue's; None: without Kueue."""
    policy = policy if policy is not None else Ours(config)
    end = until if until is not None else trace.seconds + TAIL
    if world is None:
        world = World(config, trace, rules=rules)
    began = time.perf_counter()
    loops, samples = _run(world, policy, world.calendar.start + end, end / SAMPLES)
    account = world.jobs.account
    cost, bought = world.cloud.bill()
    never = [end - submitted for submitted in world.jobs.not_begun()]
    return Result(
        policy=policy.name,
        waits=tuple(sorted([*account.waits, *never])),
        delays=tuple(sorted(account.delays)),
        pods=account.submitted,
        finished=account.finished,
        cost=cost,
        used=account.used_gpu_seconds / 3600,
        bought=bought,
        lost=account.lost_gpu_seconds / 3600,
        restarts=account.restarts,
        ended_busy=dict(world.ended_busy.items()),
        launches=world.cloud.launches,
        failed=world.cloud.failed,
        left=world.cloud.running() - sum(group.min for group in config.groups),
        writes=dict(world.writes),
        loops=loops,
        seconds=time.perf_counter() - began,
        simulated=end,
        samples=samples,
    )


def _run(world: World, policy: Ours, end: float, every: float) -> tuple[int, tuple[Sample, ...]]:
    start, loops = world.now, 0
    samples: list[Sample] = []
    world.advance(start)
    while world.now < end:
        due = policy.loop(world, world.snapshot(), world.now)
        loops += 1
        _sample(world, samples, every)
        following = _following(start, policy.interval, world.now)
        if due > world.now:
            world.advance_to_change(min(_grid(start, policy.interval, due), end))
            following = _grid(start, policy.interval, world.now)
        world.advance(min(max(following, world.now), end))
    _sample(world, samples, 0.0)
    return loops, tuple(samples)


def _following(start: float, interval: float, now: float) -> float:
    """The time of the loop after this one."""
    return start + (math.floor((now - start) / interval + 1e-9) + 1) * interval


def _grid(start: float, interval: float, time: float) -> float:
    """The time of the first loop at or after a time."""
    if math.isinf(time):
        return time
    return start + math.ceil((time - start) / interval - 1e-9) * interval


def _sample(world: World, samples: list[Sample], every: float) -> None:
    """Record a sample: one per interval, with the maxima."""
    at = world.calendar.elapsed
    cloud = world.cloud
    now = Sample(at, world.waiting, cloud.running(), cloud.bill()[0])
    last = samples[-1] if samples else None
    if last is None or at >= last.at + every:
        samples.append(now)
    else:
        samples[-1] = Sample(
            last.at,
            max(last.waiting, now.waiting),
            max(last.machines, now.machines),
            last.spent,
        )


def _quantile(values: tuple[float, ...], share: float) -> float:
    if not values:
        return 0.0
    return values[min(len(values) - 1, max(0, math.ceil(share * len(values)) - 1))]
