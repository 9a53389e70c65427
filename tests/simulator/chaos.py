"""Random worlds in which much goes wrong, and a controller that is killed in the middle of what it does.

Everything comes from a seed. Faults end after a while, so that a controller that is any good can finish.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from simulator.worlds import FaultyWorld, config, group

from infra.autoscaler.config import Config
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Action, Decision
from infra.autoscaler.memory import Memory, load
from infra.autoscaler.observed.snapshot import DRAIN_TAINT, GPU, Snapshot
from infra.simulator import runner
from infra.simulator.cloud import RefusedError
from infra.simulator.conditions import Capacity, Conditions, Machines, Outage
from infra.simulator.policy import Ours
from infra.simulator.trace import Job, Trace
from infra.simulator.world import World

HOUR = 3600.0
REGIONS = ("us-west-2", "us-east-1")


@dataclass
class Seen:
    """What must not be."""

    wrongs: list[str] = field(default_factory=list)
    kills: int = 0
    faults: int = 0
    stale: int = 0


Decide = Callable[[Snapshot, Memory, Config, float], Decision]


class KilledError(Exception):
    """The controller's process is gone, in the middle of what it did."""


class Mortal(Ours):
    """Our policy, killed now and then before one of its actions, and begun anew with what it saved.

    Now and then it also sees the world of the loop before, as a reader does whose watch lags.
    """

    def __init__(
        self, settings: Config, decide: Decide, seen: Seen, random: Random, chance: float, until: float
    ) -> None:
        super().__init__(settings)
        self._decided = decide
        self._seen = seen
        self._random = random
        self._chance = chance
        self._until = until
        self._down = 0.0
        self._before: Snapshot | None = None

    def decide(self, snapshot: Snapshot, now: float) -> Decision:
        return self._decided(snapshot, self.memory, self._config, now)

    def act(self, world: World, action: Action, now: float) -> None:
        if world.calendar.elapsed < self._until and self._random.random() < self._chance:
            raise KilledError
        super().act(world, action, now)

    def loop(self, world: World, snapshot: Snapshot, now: float) -> float:
        early = world.calendar.elapsed < self._until
        if now < self._down:
            return self._down
        if self._before is not None and early and self._random.random() < 0.1:
            snapshot = self._before
            self._seen.stale += 1
        self._before = snapshot
        try:
            due = super().loop(world, snapshot, now)
        except KilledError:
            self._seen.kills += 1
            self._down = now + self._random.choice((0.0, 20.0, 90.0))
            self.memory = load(self.saved)
            return max(self._down, now)
        return now if snapshot.at < now else due


def configuration(random: Random) -> Config:
    """Two regions, each with whole machines and, perhaps, single GPUs on the spot market."""
    groups = []
    for order, region in enumerate(REGIONS):
        least = random.choice((0, 0, 1))
        groups.append(group(f"whole-{region}", region, order=order, priority=10, min=least))
        if random.random() < 0.7:
            groups.append(
                group(
                    f"spot-{region}",
                    region,
                    order=order,
                    priority=20,
                    spot=True,
                    kind="p3.2xlarge",
                    max=30,
                    allocatable={"cpu": 7500, "memory": 50 << 30, "pods": 60, GPU: 1},
                )
            )
    return config(
        *groups,
        quotas=random.choice(({}, {}, {REGIONS[0]: {"on-demand-p": 8 * 32, "spot-p": 20 * 32}})),
        max_hourly_cost=random.choice((None, None, 130.0)),
        idle=random.choice((120, 600)),
        boot_timeout=600,
        spare=random.choice(({}, {}, {f"whole-{REGIONS[0]}": 1})),
    )


def trouble(random: Random, hours: float) -> Conditions:
    """What breaks within so many hours."""
    end = hours * HOUR
    rows = []
    for _ in range(random.randint(1, 5)):
        begin = random.uniform(0, end)
        region = random.choice(REGIONS)
        rows.append(
            Capacity(
                region,
                begin,
                min(end, begin + random.uniform(0.2, 2) * HOUR),
                random.choice((0, 0, 1, 3)),
                zones=random.choice(((), (f"{region}a",))),
                spot=random.choice((None, True, False)),
            )
        )
    outages = []
    for _ in range(random.randint(0, 2)):
        begin = random.uniform(0, end)
        outages.append(Outage(random.choice(REGIONS), begin, min(end, begin + random.uniform(60, 1800))))
    return Conditions(
        seed=random.randint(0, 10**6),
        boot=random.choice((60, 150)),
        stillborn=random.choice((0.0, 0.05)),
        interrupted=random.choice((0.0, 0.3)),
        capacity=tuple(rows),
        outages=tuple(outages),
        physical=(Machines("owned", random.randint(0, 2), 4, 30000, 200000),),
    )


def work(random: Random, hours: float, count: int) -> tuple[Job, ...]:
    """Jobs each of which fits an empty world."""
    found = []
    for number in range(count):
        gang = random.random() < 0.25
        asked = random.choice((1, 1, 1, 2, 4)) if not gang else random.choice((2, 4))
        found.append(
            Job(
                submit=round(random.uniform(0, hours * HOUR)),
                name=f"job-{number}",
                seconds=round(math.exp(random.uniform(4, 8.5))),
                pods=random.randint(2, 6) if gang else random.choice((1, 1, 2, 10)),
                gpus=asked,
                cpu=asked * 2000,
                memory=asked * 8000,
                gang=gang,
                across=gang and random.random() < 0.3,
                priority=random.choice((0, 0, 0, 100)),
                checkpoint=random.choice((0, 300)),
                labels={"causeway.dev/site": random.choice(REGIONS)} if random.random() < 0.2 else {},
                user=random.choice(("ada", "bob")),
            )
        )
    return tuple(sorted(found, key=lambda job: (job.submit, job.name)))


def watch(there: FaultyWorld, seen: Seen, random: Random, chance: float, until: float) -> None:
    """Refuse a write now and then, or lose its answer, and look at each that is made."""

    def fault(kind: str, name: str) -> None:
        if kind == "evict":
            _evicted(there, seen, name)
        elif kind == "TerminateInstance":
            _terminated(there, seen, name)
        if there.calendar.elapsed < until and random.random() < chance:
            seen.faults += 1
            raise RefusedError(f"{kind} {name}: the service does not answer")

    def lost(kind: str, name: str) -> None:
        if there.calendar.elapsed < until and random.random() < chance / 2:
            seen.faults += 1
            raise RefusedError(f"{kind} {name}: done, but the answer is lost")

    there.fault, there.lost = fault, lost


def _evicted(there: World, seen: Seen, uid: str) -> None:
    """Work is asked to leave only where its machine goes in any case."""
    work = there.cluster.works.get(uid)
    if work is None or work.host is None:
        return
    machine = there.cloud.machine(work.host.seen.instance)
    if machine is not None and machine.seen.interrupted is None and not machine.seen.leaving:
        seen.wrongs.append(f"{uid} was evicted from {machine.seen.id}, which nobody takes away")


def _terminated(there: World, seen: Seen, instance: str) -> None:
    """No machine is ended by choice while work runs on it."""
    machine = there.cloud.machine(instance)
    if machine is not None and machine.seen.interrupted is None and there.works_on(machine.node):
        seen.wrongs.append(f"{instance} was ended with work on it")


def check(there: World, result: runner.Result, seen: Seen) -> list[str]:
    """What is wrong at the end of a run."""
    wrongs = list(seen.wrongs)
    if result.finished < result.pods:
        wrongs.append(f"{result.pods - result.finished} of {result.pods} pods never came to their end")
    busy = {why: count for why, count in result.ended_busy.items() if why != "interrupted"}
    if busy:
        wrongs.append(f"machines ended with work on them: {busy}")
    # A machine that is interrupted is asked to end by ourselves as well, once it is empty; that is no choice.
    spare = sum(there.config.spare.values())
    if result.left > spare:
        wrongs.append(f"{result.left} machines are left, {spare} of them as spares")
    tainted = [
        node.name for node in there.snapshot().nodes if any(each.key == DRAIN_TAINT for each in node.taints)
    ]
    if tainted:
        wrongs.append(f"nodes that are still tainted: {tainted}")
    return wrongs


@dataclass(frozen=True)
class Run:
    """A run and what was wrong with it."""

    result: runner.Result
    seen: Seen
    wrongs: list[str]


def run(
    seed: int,
    *,
    hours: float = 4,
    jobs: int = 25,
    faults: float = 0.04,
    kills: float = 0.04,
    decide: Decide = decide,
) -> Run:
    """A random world of a seed, to its end."""
    random = Random(seed)
    asked = Trace(work(random, hours, jobs), trouble(random, hours))
    settings = configuration(random)
    seen = Seen()
    there = FaultyWorld(settings, asked)
    watch(there, seen, random, faults, hours * HOUR)
    policy = Mortal(settings, decide, seen, random, kills, hours * HOUR)
    result = runner.run(settings, asked, policy, world=there, until=(hours + 20) * HOUR)
    return Run(result, seen, check(there, result, seen))
