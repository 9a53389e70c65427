"""Equal pods, all at once: ``python -m benchmarks.autoscaler.burst``."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import GPU, PODS, GroupState, Pod, Shape, Snapshot
from infra.autoscaler.placement import scale_up

NOW = 1_800_000_000.0
_GI = 2**30
_REGIONS = ("us-west-2", "us-east-1", "us-east-2", "eu-west-1")
_TYPE = PricedType("p3.16xlarge", 1, 64, 24.48, 7.34, "on-demand-p", "spot-p")


@dataclass(frozen=True, slots=True)
class Burst:
    """What came of it."""

    seconds: float
    pods: int
    placed: int
    sizes: Mapping[str, int]


def groups(most: int) -> tuple[Group, ...]:
    """Machines with eight GPUs, in four regions."""
    return tuple(
        Group(
            name=f"research-{region}-p3",
            pool="p3",
            site=region,
            region=region,
            order=order,
            priority=0,
            min=0,
            max=most,
            zones=tuple(f"{region}{letter}" for letter in "abc"),
            types=(_TYPE,),
            on_demand_base=0,
            on_demand_percent=0,
            labels={"causeway.dev/site": region, "causeway.dev/gpu-model": "v100"},
            taints=(),
            allocatable={"cpu": 63_000, "memory": 480 * _GI, PODS: 110, GPU: 8},
            drain_timeout_seconds=300,
        )
        for order, region in enumerate(_REGIONS)
    )


def measure(pods: int = 50_000) -> Burst:
    """One plan for so many one-GPU pods."""
    config = Config("research", "research", {region: region for region in _REGIONS}, groups(-(-pods // 24)))
    shape = Shape("user-ada", (("cpu", 4000), ("memory", 16 * _GI), (GPU, 1), (PODS, 1)))
    snapshot = Snapshot(
        at=NOW,
        pods=tuple(
            Pod(f"uid-{n}", "user-ada", f"trial-{n}", shape, labels={"index": str(n)}, created=NOW)
            for n in range(pods)
        ),
        groups={each.name: GroupState(each.name, each.region, 0, 0, each.max) for each in config.groups},
    )
    started = time.perf_counter()
    view = state_builder.build(snapshot, Memory(), config, NOW)
    growth = scale_up.plan(view, snapshot, Memory(), config, NOW)
    seconds = time.perf_counter() - started
    placed = sum(each.count for each in growth.verdicts if each.outcome == "starting")
    return Burst(seconds, pods, placed, growth.sizes)


def main() -> None:
    """Print it."""
    for pods in (1_600, 50_000):
        found = measure(pods)
        sys.stdout.write(
            f"{found.pods:,} pods, {found.placed:,} placed: {found.seconds:.2f} s, {dict(found.sizes)}\n"
        )


if __name__ == "__main__":
    main()
