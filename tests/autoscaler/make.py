"""Makers of everything that the autoscaler sees, with defaults that make sense together.

Racks of titan nodes with four GPUs, a pool of p3.8xlarge (four V100) in three regions, and one of machines
without GPUs. Everything is made at `NOW`; amounts are as in ``infra.autoscaler.observed.snapshot``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.node_properties import Resources, Taint
from infra.autoscaler.observed.snapshot import (
    GPU,
    PODS,
    Activity,
    Gang,
    GangSet,
    GroupState,
    Instance,
    Node,
    Owner,
    Pod,
    Requirement,
    Selector,
    Shape,
    Snapshot,
    Toleration,
)

NOW: Final = 1_800_000_000.0
MI: Final = 2**20
GI: Final = 2**30

REGIONS: Final = {"us-west-2": "us-west-2", "us-east-1": "us-east-1", "eu-west-1": "eu-west-1"}
ZONES: Final = {
    "us-west-2": ("us-west-2a", "us-west-2b", "us-west-2c"),
    "us-east-1": ("us-east-1a", "us-east-1b", "us-east-1d"),
    "eu-west-1": ("eu-west-1b", "eu-west-1c"),
}
GPU_TAINT: Final = Taint(GPU, "present", "NoSchedule")
GPU_TOLERATION: Final = Toleration(GPU, "Exists")

TITAN: Final[Resources] = {"cpu": 39_530, "memory": 238_470 * MI, PODS: 110, GPU: 4}
P3: Final[Resources] = {
    "cpu": 31_590,
    "memory": 227_103 * MI,
    "ephemeral-storage": 90 * GI,
    PODS: 110,
    GPU: 4,
}
CPU: Final[Resources] = {"cpu": 15_710, "memory": 57_631 * MI, "ephemeral-storage": 90 * GI, PODS: 110}

P3_TYPE: Final = PricedType("p3.8xlarge", 1, 32, 12.24, 3.67, "on-demand-p", "spot-p")
CPU_TYPE: Final = PricedType("m6i.4xlarge", 1, 16, 0.768, 0.31, "on-demand-standard", "spot-standard")


def shape(
    *,
    gpus: int = 0,
    cpu: int = 1000,
    memory: int = GI,
    namespace: str = "user-ada",
    extra: Resources | None = None,
    **more: Any,
) -> Shape:
    """A shape: ``gpus`` GPUs, ``cpu`` millicores, ``memory`` bytes; one with GPUs tolerates their taint."""
    asked = {"cpu": cpu, "memory": memory, GPU: gpus, PODS: 1, **(extra or {})}
    if gpus:
        more.setdefault("tolerations", (GPU_TOLERATION,))
    return Shape(namespace, tuple(sorted((k, v) for k, v in asked.items() if v)), **more)


def pod(name: str = "work", like: Shape | None = None, *, node: str = "", **more: Any) -> Pod:
    """A pod that waits, or runs on ``node``; `more`: fields of Pod; without ``like`` also of shape."""
    of_pod = {key: more.pop(key) for key in [*more] if key in Pod.__struct_fields__}
    like = like or shape(**more)
    of_pod.setdefault("uid", f"uid-{name}")
    of_pod.setdefault("phase", "Running" if node else "Pending")
    of_pod.setdefault("created", NOW - 60)
    if node:
        of_pod.setdefault("started", NOW - 50)
    return Pod(namespace=like.namespace, name=name, shape=like, node=node, **of_pod)


def pods(count: int, name: str = "work", like: Shape | None = None, **more: Any) -> tuple[Pod, ...]:
    """So many equal pods: ``work-0``, ``work-1`` …, of one Shape object."""
    of_pod = {key: more.pop(key) for key in [*more] if key in Pod.__struct_fields__}
    like = like or shape(**more)
    return tuple(pod(f"{name}-{number}", like, **of_pod) for number in range(count))


def job(name: str = "train") -> Owner:
    """The owner that a Job's pods have."""
    return Owner("Job", name, f"uid-job-{name}")


DAEMON: Final = Owner("DaemonSet", "flannel", "uid-ds-flannel")


def titan(name: str = "titan-a01", *, site: str = "rack-a", **more: Any) -> Node:
    """A physical node with four Titan X."""
    return _node(
        name,
        {
            "causeway.dev/site": site,
            "causeway.dev/capacity-type": "physical",
            "causeway.dev/gpu-model": "titan-x-pascal",
            "causeway.dev/gpu-count": "4",
            "causeway.dev/gpu-class": "old",
            "causeway.dev/without-gpus": "idle",
            "topology.kubernetes.io/region": site,
            "topology.kubernetes.io/zone": site,
        },
        TITAN,
        (GPU_TAINT,),
        more,
    )


def titans(count: int, *, site: str = "rack-a", **more: Any) -> tuple[Node, ...]:
    """So many of them."""
    return tuple(titan(f"titan-{site[-1]}{number:02}", site=site, **more) for number in range(1, count + 1))


def node(
    of: Group, number: int = 1, *, zone: str | None = None, kind: str | None = None, **more: Any
) -> Node:
    """A node of a group, ready, whose instance is ``instance(of, number)``."""
    zone = zone or of.zones[0]
    kind = kind or of.types[0].name
    identity = instance_id(of, number)
    more.setdefault("provider", f"aws:///{zone}/{identity}")
    more.setdefault("taints", of.taints)
    more.setdefault("allocatable", of.allocatable)
    labels = {**of.labels, "topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": kind}
    return _node(
        more.pop("name", f"{of.pool}-{of.site}-{number}"), labels, more["allocatable"], more["taints"], more
    )


def _node(
    name: str, labels: Mapping[str, str], offers: Resources, taints: tuple[Taint, ...], more: dict[str, Any]
) -> Node:
    more.setdefault("uid", f"uid-{name}")
    more.setdefault("allocatable", offers)
    more.setdefault("taints", taints)
    more.setdefault("created", NOW - 3600)
    more.setdefault("since", NOW - 3500)
    more.setdefault("ready", True)
    node_labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **labels,
        **more.pop("labels", {}),
    }
    return Node(name=name, labels=node_labels, **more)


def group(
    site: str = "us-west-2",
    pool: str = "gpu-p3",
    *,
    order: int | None = None,
    zones: Sequence[str] | None = None,
    types: Sequence[PricedType] = (P3_TYPE,),
    **more: Any,
) -> Group:
    """A group of p3.8xlarge at a site, up to 20 of them, on demand."""
    zone_names = tuple(zones if zones is not None else ZONES.get(site, (f"{site}a", f"{site}b")))
    labels = {
        "causeway.dev/pool": pool,
        "causeway.dev/site": site,
        "causeway.dev/capacity-type": "on-demand",
        "topology.kubernetes.io/region": site,
        **({"topology.kubernetes.io/zone": zone_names[0]} if len(zone_names) == 1 else {}),
        **({"node.kubernetes.io/instance-type": types[0].name} if len(types) == 1 else {}),
        **more.pop("labels", {}),
    }
    if types[0] is P3_TYPE:
        labels = {
            "causeway.dev/gpu-model": "v100",
            "causeway.dev/gpu-class": "standard",
            "causeway.dev/gpu-count": "4",
            "causeway.dev/without-gpus": "never",
            **labels,
        }
        more.setdefault("taints", (GPU_TAINT,))
        more.setdefault("allocatable", P3)
    return Group(
        **{
            "name": f"research-{site}-{pool}",
            "pool": pool,
            "site": site,
            "region": REGIONS.get(site, site),
            "order": list(REGIONS).index(site) if order is None and site in REGIONS else order or 0,
            "priority": 0,
            "min": 0,
            "max": 20,
            "zones": zone_names,
            "types": tuple(types),
            "on_demand_base": 0,
            "on_demand_percent": 100,
            "labels": labels,
            "taints": (),
            "allocatable": CPU,
            "drain_timeout_seconds": 300,
            **more,
        }
    )


def cpu_group(site: str = "us-west-2", pool: str = "cpu", **more: Any) -> Group:
    """A group of machines without GPUs, up to 60 of them."""
    more.setdefault("max", 60)
    return group(site, pool, types=more.pop("types", (CPU_TYPE,)), **more)


def config(*groups: Group, **more: Any) -> Config:
    """A configuration; without groups: gpu-p3 in three regions, and cpu in the first."""
    of_groups = groups or (*map(group, REGIONS), cpu_group())
    regions = {member.site: member.region for member in of_groups}
    return Config(
        environment="research", cluster="research", regions=regions, groups=tuple(of_groups), **more
    )


def instance_id(of: Group, number: int) -> str:
    """The id that a group's instance of that number has, wherever it is made."""
    digest = sum(ord(letter) * (place + 7) ** 3 for place, letter in enumerate(of.name)) % 16**8
    return f"i-{digest:08x}{number:09x}"


def instance(of: Group, number: int = 1, *, zone: str | None = None, **more: Any) -> Instance:
    """An instance of a group, in service for an hour."""
    more.setdefault("type", of.types[0].name)
    more.setdefault("lifecycle", "InService")
    more.setdefault("launched", NOW - 3700)
    more.setdefault("protected", True)
    return Instance(id=more.pop("id", instance_id(of, number)), zone=zone or of.zones[0], **more)


def state(
    of: Group, desired: int | None = None, instances: Sequence[Instance] | int = (), **more: Any
) -> GroupState:
    """A group as AWS tells of it: ``instances`` may be a number. Protected, never rebalanced."""
    members = (
        tuple(instance(of, number) for number in range(1, instances + 1))
        if isinstance(instances, int)
        else tuple(instances)
    )
    more.setdefault("suspended", ("AZRebalance",))
    more.setdefault("protects", True)
    more.setdefault("hooks", (of.hook,))
    return GroupState(
        name=of.name,
        region=of.region,
        desired=sum(one.weight for one in members) if desired is None else desired,
        min=of.min,
        max=of.max,
        instances=members,
        **more,
    )


def failed(of: Group, message: str, *, start: float = NOW - 5, cause: str = "", **more: Any) -> Activity:
    """A launch that failed."""
    return Activity(
        id=more.pop("id", f"activity-{of.name}-{start:.0f}"),
        group=of.name,
        start=start,
        status=more.pop("status", "Failed"),
        cause=cause
        or "At 2027-01-15T08:00:00Z an instance was started in response to a difference between desired "
        "and actual capacity, increasing the capacity from 0 to 1.",
        description=more.pop("description", "Launching a new EC2 instance.  Status Reason: " + message),
        message=message,
        **more,
    )


def gang(
    name: str = "train", count: int = 2, like: Shape | None = None, *, kind: str = "Job", **more: Any
) -> Gang:
    """A gang of equal pods that its object describes; its pods are ``pods(…, gang=key_of(name))``."""
    like = like or shape(gpus=more.pop("gpus", 4))
    more.setdefault("created", NOW - 60)
    more.setdefault("uid", f"uid-{kind.lower()}-{name}")
    return Gang(
        key=key_of(name, kind=kind, namespace=like.namespace),
        kind=kind,
        namespace=like.namespace,
        name=name,
        sets=more.pop("sets", (GangSet(like, count),)),
        **more,
    )


def key_of(name: str = "train", *, kind: str = "Job", namespace: str = "user-ada") -> str:
    """A gang's key."""
    return f"{kind}/{namespace}/{name}"


def selector(**equals: str) -> Selector:
    """A selector of equal labels."""
    return Selector(equals=tuple(sorted(equals.items())))


def requires(key: str, operator: str, *values: str) -> Requirement:
    """An expression."""
    return Requirement(key, operator, values)


def snapshot(
    nodes: Iterable[Node] = (),
    pods: Iterable[Pod] = (),
    groups: Iterable[GroupState] | None = None,
    *,
    of: Config | None = None,
    gangs: Iterable[Gang] = (),
    **more: Any,
) -> Snapshot:
    """A snapshot at `NOW`. Without ``groups``: all of a configuration's, empty."""
    states = [state(one) for one in (of or config()).groups] if groups is None else groups
    more.setdefault("at", NOW)
    return Snapshot(
        nodes=tuple(nodes),
        pods=tuple(pods),
        gangs={one.key: one for one in gangs},
        groups={one.name: one for one in states},
        **more,
    )


def changed(thing: Any, **fields: Any) -> Any:
    """The same with other values in some fields."""
    return msgspec.structs.replace(thing, **fields)
