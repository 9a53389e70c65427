"""Whole loops, decoding included: ``python -m benchmarks.autoscaler.loop``.

The first is one of a process that has just been started, on a cluster of 1,000 nodes: every page of every
list is decoded, all of it is joined, and decided upon. The pods are of real size (see `decoding`); a quarter
of them has GPUs, and the others wait for GPUs that are nowhere yet.

The second comes from outside: 1,600 pods with a GPU each are submitted to an API server, and the controller,
with its watches, its memory and its events, writes the sizes of groups at an embedded AWS.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.autoscaler import burst, decoding
from infra.autoscaler import loop
from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import SetDesired
from infra.autoscaler.fault_isolation import isolated
from infra.autoscaler.memory import Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.decoding import Decoder, snapshot
from infra.autoscaler.observed.snapshot import GPU, GroupState, Instance

NOW: Final = 1_795_384_800.0
"""A day after the benchmark's pods were made."""


_LABELS: Final = {"causeway.dev/pool": "gpu-p3", "causeway.dev/gpu-class": "standard"}
_TAINT: Final = Taint(GPU, "present")


@dataclass(frozen=True, slots=True)
class Whole:
    """What came of a loop."""

    decode: float
    """Seconds, from the bodies of lists to objects."""
    join: float
    """And to a snapshot."""
    decide: float
    """And to a decision."""
    cpu: float
    """Of a processor, for all of it: what a busy machine changes less."""
    mib: int
    """The most memory that the process has held. Lists are made page by page, as the API gives them."""
    outcomes: Mapping[str, int]
    sizes: Mapping[str, int]

    @property
    def seconds(self) -> float:
        return self.decode + self.join + self.decide


def whole(pods: int = 30_000, hosts: int = 1_000, *, diverse: bool = False) -> Whole:
    """One loop of a new process."""
    loop.collect_seldom()  # as the process does it
    groups = tuple(
        replace(each, labels={**each.labels, **_LABELS}, taints=(_TAINT,)) for each in burst.groups(hosts)
    )
    config = Config("research", "research", {each.site: each.region for each in groups}, groups)
    states = _states(groups, hosts)
    bodies: dict[str, Iterable[bytes]] = {
        "Pod": decoding.pages(pods, diverse=diverse),
        "Node": decoding.nodes(hosts),
        **decoding.homes(),
    }
    decoder = Decoder()
    caches: dict[str, dict[str, Any]] = {kind: {} for kind in bodies}
    decode = cpu = 0.0
    for kind, pages in bodies.items():
        for body in pages:
            started, worked = time.perf_counter(), time.process_time()
            caches[kind].update(decoder.list(kind, body).objects)
            decode += time.perf_counter() - started
            cpu += time.process_time() - worked
    decoded, worked = time.perf_counter(), time.process_time()
    seen = snapshot(caches, states, {}, {}, NOW)
    joined = time.perf_counter()
    decision = isolated(seen, Memory(), config, NOW)
    ended = time.perf_counter()
    outcomes: Counter[str] = Counter()
    for verdict in decision.verdicts:
        outcomes[verdict.outcome] += verdict.count
    return Whole(
        decode=decode,
        join=joined - decoded,
        decide=ended - joined,
        cpu=cpu + time.process_time() - worked,
        mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        outcomes=outcomes,
        sizes={each.group: each.desired for each in decision.actions if isinstance(each, SetDesired)},
    )


def _states(groups: tuple[Group, ...], hosts: int) -> dict[str, GroupState]:
    """All nodes are machines of the first group."""
    first, *others = groups
    machines = tuple(
        Instance(f"i-{number:017x}", first.types[0].name, first.zones[0], "InService", launched=NOW - 90_000)
        for number in range(hosts)
    )
    return {
        first.name: GroupState(first.name, first.region, hosts, 0, first.max, machines),
        **{each.name: GroupState(each.name, each.region, 0, 0, each.max) for each in others},
    }


@dataclass(frozen=True, slots=True)
class Burst:
    """What came of a burst."""

    loops: int
    """From the first pod that was seen until all had what they need."""
    seconds: float
    """Of the loop that wrote, AWS's answers included."""
    cpu: float
    """Of this process in it: of the API server and of AWS, which are in it too, as well."""
    writes: Mapping[str, int]
    """Group → how many times its size was written."""
    sizes: Mapping[str, int]


def outside(pods: int = 1_600) -> Burst:
    """A burst through watches to writes."""
    from autoscaler import make
    from autoscaler.controller_stage import staged
    from autoscaler.embedded import running

    groups = (make.group(max=300), make.group("us-east-1", max=300))
    with running() as aws, TemporaryDirectory() as folder, staged(aws, Path(folder), *groups) as stage:
        assert not stage.turn().decision.actions
        stage.pods(pods, gpus=1)
        writes: Counter[str] = Counter()
        spent = worked = 0.0
        loops = 0
        while True:
            before = time.process_time()
            turn = stage.turn(10)
            sizes = [each for each in turn.decision.actions if isinstance(each, SetDesired)]
            writes.update(each.group for each in sizes)
            if not sizes:
                return Burst(loops, spent, worked, writes, stage.sizes())
            loops += 1
            spent, worked = turn.cycle.seconds, time.process_time() - before


def alone(work: Any, *arguments: Any, **more: Any) -> Any:
    """In a process of its own: memory is counted from its begin."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments, more)


def lines() -> Iterator[str]:
    """For people."""
    for what, diverse in (("equal in Jobs of 500", False), ("no two alike", True)):
        found: Whole = alone(whole, diverse=diverse)
        yield (
            f"1,000 nodes, 30,000 pods, {what}: {found.seconds:.2f} s (decode {found.decode:.2f}, "
            f"join {found.join:.2f}, decide {found.decide:.2f}), {found.cpu:.2f} s of a processor, "
            f"{found.mib} MiB, {dict(found.outcomes)}, {dict(found.sizes)}"
        )
    burst: Burst = alone(outside)
    yield (
        f"1,600 one-GPU pods from outside: {burst.loops} loop of {burst.seconds:.2f} s, "
        f"{burst.cpu:.2f} s of a processor with both servers, writes {dict(burst.writes)}, "
        f"{dict(burst.sizes)}"
    )


if __name__ == "__main__":
    for line in lines():
        sys.stdout.write(f"{line}\n")
