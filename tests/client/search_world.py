"""A cluster in which a search runs without a clock: trials take turns by their speeds, and report a curve."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from causeway.search.engine import Engine, applied
from causeway.search.fields import Sweep
from causeway.search.trials import Decision, End, Parameters, Resume, Start, Trial

Curve = Callable[[Parameters, int], float]


def sweep_of(parameters: dict[str, Any], **fields: Any) -> Sweep:
    return Sweep.model_validate({"parameters": parameters, "metric": "loss", "trials": 30, **fields})


@dataclass
class World:
    """What outlives a conductor: the record of trials, and the runs."""

    engine: Engine
    curve: Curve
    steps: int
    """Of a whole trial."""
    seed: int = 0
    resumable: bool = True
    failing: Callable[[Trial], bool] = lambda _: False
    trials: tuple[Trial, ...] = ()
    moves: list[Start | Resume | Decision] = field(default_factory=list)
    """All that was recorded, in order."""
    trained: int = 0
    """Steps."""
    clock: float = 0.0
    _queue: list[tuple[float, int]] = field(default_factory=list)

    def record(self, move: Start | Resume | Decision) -> None:
        self.trials = applied(self.trials, move)
        self.moves.append(move)
        if not isinstance(move, Decision):
            self._later(move.number)

    def step(self) -> None:
        """The run that is due trains a step and reports it."""
        self.clock, number = heapq.heappop(self._queue)
        trial = self.trials[number - 1]
        if trial.state != "running":
            return
        step = trial.last_step + 1
        self.trained += 1
        if self.failing(trial):
            trial = replace(trial, state="failed", cause=f"no luck at step {step}")
        else:
            reports = (*trial.reports, (step, self.curve(trial.parameters, step)))
            trial = replace(trial, reports=reports, resumable=self.resumable)
            if step == self.steps:
                trial = replace(trial, state="done")
        self.trials = (*self.trials[: number - 1], trial, *self.trials[number:])
        if trial.state == "running":
            self._later(number)

    def _later(self, number: int) -> None:
        speed = random.Random(f"{self.seed}/{number}").uniform(0.7, 1.3)
        heapq.heappush(self._queue, (self.clock + speed, number))


def turn(world: World) -> End | None:
    """What a conductor does before it waits again."""
    engine = world.engine
    for decision in engine.judge(world.trials):
        world.record(decision)
    while move := engine.propose(world.trials):
        world.record(move)
    return engine.end(world.trials)


def run(world: World) -> End:
    while (end := turn(world)) is None:
        world.step()
    return end


def best(world: World) -> Trial:
    found = world.engine.best(world.trials)
    assert found is not None
    return found


def numbers(moves: Sequence[Start | Resume | Decision], kind: type) -> list[int]:
    return [move.number for move in moves if isinstance(move, kind)]


def learning_curves(seed: int, count: int, noise: float = 0.02) -> tuple[Curve, Curve]:
    """What trials ``{"curve": 0}`` to ``count - 1`` report, and the same without noise.

    Losses that fall from 2 by a power law, each to a floor of its own at a rate of its own: they cross.
    """
    draw = random.Random(seed)
    shapes = [(draw.uniform(0.1, 1.0), draw.uniform(0.3, 1.2)) for _ in range(count)]

    def true(parameters: Parameters, step: int) -> float:
        floor, rate = shapes[int(parameters["curve"])]
        return floor + (2 - floor) * math.pow(1 + step, -rate)

    def seen(parameters: Parameters, step: int) -> float:
        spread = random.Random(f"{seed}/{parameters['curve']}/{step}")
        return true(parameters, step) + spread.gauss(0, noise)

    return seen, true


@dataclass(frozen=True)
class Halving:
    """What ASHA with rungs 1, 3, 9 did with 81 curves of 27 steps, 16 in parallel."""

    share: float
    """Of the steps that all curves have."""
    place: int
    """Of its winner, by what curves come to; 1 is the best."""


def halved(seed: int, *, resumable: bool = True) -> Halving:
    stop = {"rule": "asha", "min": 1, "max": 27, "factor": 3}
    space = {"curve": {"int": [0, 80]}}
    sweep = sweep_of(space, trials=81, parallel=16, sampler="random", seed=seed, stop=stop)
    seen, true = learning_curves(seed, 81)
    world = World(Engine(sweep, "curves"), seen, 27, seed=seed, resumable=resumable)
    run(world)
    order = sorted(range(81), key=lambda curve: true({"curve": curve}, 27))
    return Halving(world.trained / (81 * 27), 1 + order.index(int(best(world).parameters["curve"])))
