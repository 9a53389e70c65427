"""Small worlds for tests: a region or two, a few machines, a trace in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import GPU, PODS
from infra.simulator.conditions import Conditions
from infra.simulator.trace import Header, Job, Trace
from infra.simulator.world import World

GPUS = {"cpu": 30000, "memory": 200 << 30, PODS: 110, GPU: 4}


def group(name: str = "gpu", region: str = "us-west-2", *, order: int = 0, **more: Any) -> Group:
    """Machines with four GPUs, up to ten of them, in two zones."""
    kind = PricedType(
        name=more.pop("kind", "p3.8xlarge"),
        weight=1,
        vcpus=32,
        on_demand=12.0,
        spot=4.0,
        quota_on_demand="on-demand-p",
        quota_spot="spot-p",
    )
    spot = more.pop("spot", False)
    return Group(
        **{
            "name": name,
            "pool": name,
            "site": region,
            "region": region,
            "order": order,
            "priority": 0,
            "min": 0,
            "max": 10,
            "zones": (f"{region}a", f"{region}b"),
            "types": (kind,),
            "on_demand_base": 0,
            "on_demand_percent": 0 if spot else 100,
            "labels": {"causeway.dev/site": region, "causeway.dev/pool": name},
            "taints": (Taint(GPU, "true"),),
            "allocatable": GPUS,
            "drain_timeout_seconds": 900,
            **more,
        }
    )


def config(*groups: Group, **more: Any) -> Config:
    """A configuration of groups; without any: one of the primary region, one of another."""
    found = groups or (group(), group("far", "us-east-1", order=1))
    return Config(
        environment="lab",
        cluster="lab",
        regions={each.site: each.region for each in found},
        groups=tuple(found),
        **more,
    )


def job(name: str = "train", submit: float = 0, seconds: float = 1800, **more: Any) -> Job:
    """A pod with a GPU that computes half an hour."""
    return Job(
        **{"name": name, "submit": submit, "seconds": seconds, "gpus": 1, "cpu": 2000, "memory": 8000, **more}
    )


def trace(*jobs: Job, **conditions: Any) -> Trace:
    """A trace of jobs. Machines boot in 100 s, GPUs take 20 s more, and nothing is left to chance."""
    return Trace(
        tuple(sorted(jobs, key=lambda each: each.submit)),
        Conditions(**{"boot": 100, "boot_spread": 0, "gpu_startup": 20, **conditions}),
    )


def write(path: Path, trace: Trace) -> None:
    """The file of a trace."""
    rows = (Header(trace.conditions), *trace.jobs)
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def world(jobs: Sequence[Job] = (), *groups: Group, **conditions: Any) -> World:
    """A world without an autoscaler."""
    return World(config(*groups), trace(*jobs, **conditions))


class FaultyWorld(World):
    """One whose writes can fail."""

    def __init__(self, config: Config, trace: Trace) -> None:
        super().__init__(config, trace)
        self.fault: Callable[[str, str], None] = lambda _kind, _name: None
        """Called before every write with its kind and object; what it raises, the write raises."""
        self.lost: Callable[[str, str], None] = lambda _kind, _name: None
        """The same after every write, which is done by then: an answer that gets lost."""

    def write(self, kind: str, name: str, do: Callable[[], None]) -> None:
        def faulty() -> None:
            self.fault(kind, name)
            do()

        super().write(kind, name, faulty)
        self.lost(kind, name)


def end(there: World, instance: str, *, decrement: bool = True) -> None:
    """End an instance, and let its hook go at once."""
    there.terminate(instance, decrement=decrement)
    there.release(instance)
