"""Starts of a long queue by declared times: ``python -m benchmarks.autoscaler.waiting``."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

from infra.autoscaler.config import Config
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import (
    GPU,
    Flavor,
    GangSet,
    Holding,
    NodeTerm,
    Queued,
    Queues,
    Requirement,
    Shape,
    Snapshot,
)
from infra.autoscaler.reporting import availability
from infra.catalogue.labels import GPU_MODEL

NOW = 1_800_000_000.0
_GI = 2**30
_FLAVORS = 12
_MODELS = tuple(f"model-{number}" for number in range(_FLAVORS))


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it."""

    seconds: float
    known: int
    """Workloads with a start, of those that are published."""
    bytes: int
    """Of the text."""


def measure(count: int, *, diverse: bool = False) -> Found:
    """``count`` Workloads of one to 64 GPUs wait, and all GPUs are in use. ``diverse``: no two are alike."""
    chance = random.Random(1)
    config = Config(environment="research", cluster="research", regions={}, groups=())
    flavors = {name: Flavor(name, labels={GPU_MODEL: name}) for name in _MODELS}
    queues = Queues(
        waiting=tuple(_queued(number, chance, diverse=diverse) for number in range(count)),
        holding=tuple(
            Holding("cohort/all", ((name, GPU, 1),), NOW - 100, True, float(chance.randrange(200, 86_400)))
            for name in _MODELS
            for _ in range(200)
        ),
        quotas={
            "cohort/all": {name: {GPU: 200, "cpu": 4_000_000, "memory": 4_000 * _GI} for name in _MODELS}
        },
        sources={"team": "cohort/all"},
        offers={"team": _MODELS},
    )
    view = state_builder.build(Snapshot(NOW), Memory(), config, NOW)
    begun = time.perf_counter()
    values, _ = availability.content(view, queues, flavors, Memory(), config, {})
    text = availability.text(values)
    seconds = time.perf_counter() - begun
    return Found(seconds, sum(each["latest_start"] is not None for each in values["queue"]), len(text))


def _queued(number: int, chance: random.Random, *, diverse: bool) -> Queued:
    gpus = chance.choice((1, 1, 1, 2, 4, 8, 8, 16))
    cpu, memory = 1000 * gpus, 8 * _GI * gpus
    models = _MODELS[:6]
    if diverse:
        cpu, memory = chance.randrange(1, 9000), chance.randrange(_GI, 64 * _GI)
        models = tuple(sorted(chance.sample(_MODELS, 6)))
    shape = Shape(
        "user-ada",
        (("cpu", cpu), ("memory", memory), (GPU, gpus)),
        affinity=(NodeTerm((Requirement(GPU_MODEL, "In", models),)),),
    )
    sets = (GangSet(shape, chance.choice((1, 1, 2, 4))),)
    name, seconds = f"run-{number}", float(chance.randrange(600, 86_400))
    return Queued(f"user-ada/{name}", "user-ada", "JobSet", name, "team", 0, NOW - number, seconds, sets)


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for alike in (True, False):
        print(measure(size, diverse=not alike))
