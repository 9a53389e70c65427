"""Scenarios of Kueue's admission, for the simulator's model and for the real Kueue: one table, two runners.

What is compared is decided by quota: who has which flavor, and who was preempted. Jobs of one scenario never
run; the autoscaler's answers are the scenario's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from infra.load import load
from infra.model import Cluster
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ROOT = Path(__file__).parents[2]
SPEC = """\
version: 1
extends: base.yaml
name: queues
domain: queues.internal
sites:
  us-west-2: {kind: aws, primary: true}
  us-east-1: {kind: aws, overflow: 1}
images: {gpu: {ubuntu: 24.04, gpu: {driver: 580, fabric_manager: true}}}
pools:
  ones:
    image: gpu
    instance_types: [g5.xlarge]
    priority: 2
    taints: &gpu [{key: nvidia.com/gpu, value: present}]
    regions: {us-west-2: {max: 4}, us-east-1: {max: 4}}
  fours:
    image: gpu
    instance_types: [g5.12xlarge]
    priority: 1
    taints: *gpu
    regions: {us-west-2: {max: 2}}
  new: {image: gpu, instance_types: [p4d.24xlarge], taints: *gpu, regions: {us-west-2: {max: 1}}}
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 1}}}
kubernetes: {usage_half_life: 7d, priority_classes: {low: {gpu_class: standard}}}
autoscaler: {image: "registry.lab.example/autoscaler:1"}
access:
  groups:
    engineers: {gpu_quota: 4}
    vision: {gpu_limit_per_user: 4}
  users:
    ada: {name: Ada Lovelace, email: ada@lab.example, uid: 10001, groups: [researchers]}
    alan: {name: Alan Turing, email: alan@lab.example, uid: 10002, groups: [engineers]}
    edith: {name: Edith Clarke, email: edith@lab.example, uid: 10003, groups: [researchers]}
    frances: {name: Frances Allen, email: frances@lab.example, uid: 10004, groups: [researchers]}
    mary: {name: Mary Somerville, email: mary@lab.example, uid: 10005, groups: [vision]}
    rosa: {name: Rosa Luxburg, email: rosa@lab.example, uid: 10006, groups: [vision, researchers]}
"""
"""Two pools with 8 GPUs each for the scenarios, whose pods are of the class ``normal``: ``new`` is not for
them. The engineers are sure of 4 GPUs of the first one."""

PRIORITIES: Mapping[str, int] = {"low": -100, "normal": 0, "high": 1000}


def spec(folder: Path) -> Cluster:
    """The environment, resolved."""
    (folder / "base.yaml").write_text((ROOT / "environments/base.yaml").read_text())
    (folder / "queues.yaml").write_text(SPEC)
    cluster, _ = resolve(load(folder / "queues.yaml").spec, Lock(), "queues")
    return cluster


@dataclass(frozen=True)
class Submit:
    """A job; its name is ``user/job``."""

    job: str
    pods: int = 1
    gpus: int = 1
    priority: str = "normal"
    site: str = ""
    cpu: int = 1


@dataclass(frozen=True)
class Capacity:
    """A pool has no machines in any region, and what waits for one is failed; or it has some again."""

    pool: str
    there: bool


@dataclass(frozen=True)
class End:
    """A job is over."""

    job: str


@dataclass(frozen=True)
class Step:
    """What happens, and what jobs have after it: a flavor, or nothing while they wait."""

    event: Submit | Capacity | End
    have: Mapping[str, Literal["ones", "fours", "cpu", ""]]


@dataclass(frozen=True)
class Scenario:
    """A story from an empty cluster on."""

    name: str
    steps: tuple[Step, ...]
    preempted: frozenset[str] = field(default=frozenset())


NONE = Capacity("ones", there=False)

SCENARIOS = (
    Scenario(
        "the first pool that has quota and large enough machines",
        (
            Step(Submit("ada/one"), {"ada/one": "ones"}),
            Step(Submit("ada/four", gpus=4), {"ada/four": "fours"}),
            Step(Submit("ada/plain", gpus=0), {"ada/plain": "cpu"}),
            Step(Submit("ada/gang", pods=8), {"ada/gang": ""}),
            Step(End("ada/one"), {"ada/gang": "ones"}),
        ),
    ),
    Scenario(
        "what fits passes what does not, until that does",
        (
            Step(Submit("ada/first", pods=8), {"ada/first": "ones"}),
            Step(Submit("ada/second", pods=5), {"ada/second": "fours"}),
            Step(Submit("ada/large", pods=4), {"ada/large": ""}),
            Step(Submit("ada/small", pods=2), {"ada/small": "fours", "ada/large": ""}),
            Step(End("ada/second"), {"ada/large": "fours"}),
        ),
    ),
    Scenario(
        "the higher goes first, then the older",
        (
            Step(Submit("ada/first", pods=8, priority="high"), {"ada/first": "ones"}),
            Step(Submit("ada/second", pods=8, priority="high"), {"ada/second": "fours"}),
            Step(Submit("ada/low", pods=8, priority="low"), {"ada/low": ""}),
            Step(Submit("ada/older", pods=8), {"ada/older": ""}),
            Step(Submit("ada/newer", pods=7), {"ada/newer": ""}),
            Step(End("ada/second"), {"ada/older": "fours", "ada/low": "", "ada/newer": ""}),
            Step(End("ada/first"), {"ada/newer": "ones", "ada/low": ""}),
        ),
    ),
    Scenario(
        "a group takes back what it is sure of, as a whole",
        (
            Step(Submit("ada/first", pods=8), {"ada/first": "ones"}),
            Step(Submit("ada/second", pods=8), {"ada/second": "fours"}),
            Step(Submit("alan/own", pods=4), {"alan/own": "ones", "ada/first": "", "ada/second": "fours"}),
        ),
        frozenset({"ada/first"}),
    ),
    Scenario(
        "in a group the newest of the lower ones make way",
        (
            Step(Submit("ada/old", pods=4, priority="low"), {"ada/old": "ones"}),
            Step(Submit("ada/new", pods=4, priority="low"), {"ada/new": "ones"}),
            Step(Submit("ada/rest", pods=8), {"ada/rest": "fours"}),
            Step(
                Submit("ada/high", pods=3, priority="high"),
                {"ada/high": "ones", "ada/old": "ones", "ada/new": ""},
            ),
        ),
        frozenset({"ada/new"}),
    ),
    Scenario(
        "between groups the one that holds more gives way, until shares are even",
        (
            Step(Submit("ada/a", pods=4), {"ada/a": "ones"}),
            Step(Submit("ada/b", pods=4), {"ada/b": "ones"}),
            Step(Submit("ada/c", pods=4), {"ada/c": "fours"}),
            Step(Submit("ada/d", pods=4), {"ada/d": "fours"}),
            Step(Submit("alan/own", pods=4), {"alan/own": "ones", "ada/b": "", "ada/a": "ones"}),
            Step(Submit("alan/more", pods=4), {"alan/more": "ones", "ada/a": "", "ada/b": ""}),
            Step(Submit("alan/most", pods=4), {"alan/most": "", "ada/c": "fours", "ada/d": "fours"}),
        ),
        frozenset({"ada/a", "ada/b"}),
    ),
    Scenario(
        "without capacity a gang gets the next pool, and later work the first again",
        (
            Step(Submit("ada/gang", pods=4), {"ada/gang": "ones"}),
            Step(NONE, {"ada/gang": "fours"}),
            Step(Submit("ada/next"), {"ada/next": "fours"}),
            Step(Capacity("ones", there=True), {"ada/gang": "fours", "ada/next": "fours"}),
            Step(Submit("ada/later"), {"ada/later": "ones"}),
        ),
    ),
    Scenario(
        "without capacity anywhere it waits, and so does what selects a region of the pool",
        (
            Step(Submit("ada/east", site="us-east-1"), {"ada/east": "ones"}),
            Step(NONE, {"ada/east": ""}),
            Step(Submit("ada/any", pods=2), {"ada/any": "fours"}),
            Step(Capacity("fours", there=False), {"ada/any": "", "ada/east": ""}),
            Step(Capacity("ones", there=True), {"ada/any": "ones", "ada/east": "ones"}),
        ),
    ),
    Scenario(
        "a user holds no more than the limit, of all pools together",
        (
            Step(Submit("mary/one", gpus=3), {"mary/one": "fours"}),
            Step(Submit("mary/two", gpus=2), {"mary/two": ""}),
            Step(Submit("mary/three"), {"mary/three": "ones", "mary/two": ""}),
            Step(Submit("rosa/one", gpus=4), {"rosa/one": "fours"}),
            Step(End("mary/one"), {"mary/two": "fours"}),
        ),
    ),
    Scenario(
        "who has used least lately is next, and among their own the higher",
        (
            Step(Submit("edith/first", gpus=0, cpu=3), {"edith/first": "cpu"}),
            Step(Submit("edith/second", gpus=0, cpu=3, priority="low"), {"edith/second": ""}),
            Step(Submit("edith/third", gpus=0, cpu=3), {"edith/third": ""}),
            Step(Submit("frances/first", gpus=0, cpu=2), {"frances/first": ""}),
            Step(End("edith/first"), {"frances/first": "cpu", "edith/third": ""}),
            Step(End("frances/first"), {"edith/third": "cpu", "edith/second": ""}),
        ),
    ),
)
