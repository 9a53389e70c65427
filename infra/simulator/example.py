"""The cluster of the bundled trace: sixty GPUs at a physical site, and three AWS regions for overflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import GPU, PODS, Flavor
from infra.catalogue import instances, prices
from infra.catalogue.labels import POOL
from infra.simulator.conditions import Machines
from infra.simulator.kueue import Choice, Rules, of_groups

SITES: Final[Mapping[str, str]] = {"oregon": "us-west-2", "virginia": "us-east-1", "ohio": "us-east-2"}
"""The primary one first."""

TITANS = Machines(
    name="titan",
    count=15,
    gpus=4,
    cpu=31000,
    memory=120000,
    labels={
        "causeway.dev/site": "office",
        "causeway.dev/pool": "titan",
    },
)
"""Fifteen machines with four Titan X."""


def config(*, most: int = 200) -> Config:
    """Per region: machines with 8 V100 for training, single GPUs on Spot Instances for sweeps, and CPUs.

    ``most`` is the maximum size of each training group, in machines of 8 GPUs.
    """
    groups = []
    for order, (site, region) in enumerate(SITES.items()):
        groups += [
            _group(site, region, order, "training", "p3.16xlarge", most, priority=10),
            _group(site, region, order, "sweeps", "p3.2xlarge", 400, priority=20, spot=True),
            _group(site, region, order, "cpu", "c5.9xlarge", 50, priority=30),
        ]
    return Config(environment="lab", cluster="lab", regions=SITES, groups=tuple(groups))


def _group(
    site: str, region: str, order: int, pool: str, kind: str, most: int, *, priority: int, spot: bool = False
) -> Group:
    found = instances.find(kind)
    assert found is not None
    count = found.gpus.count if found.gpus else 0
    # Reserved by the kubelet and the system: half a core and a tenth of the memory.
    offered = {"cpu": found.vcpus * 1000 - 500, "memory": int(found.memory_mib * 0.9) << 20, PODS: 110}
    labels = {
        "causeway.dev/site": site,
        "causeway.dev/pool": pool,
        "causeway.dev/capacity-type": "spot" if spot else "on-demand",
    }
    family = "p" if count else "standard"
    return Group(
        name=f"lab-{site}-{pool}",
        pool=pool,
        site=site,
        region=region,
        order=order,
        priority=priority,
        min=0,
        max=most,
        zones=tuple(f"{region}{letter}" for letter in "abc"),
        types=(
            PricedType(
                name=kind,
                weight=1,
                vcpus=found.vcpus,
                on_demand=prices.on_demand(kind, region),
                spot=prices.spot(kind, region),
                quota_on_demand=f"on-demand-{family}",
                quota_spot=f"spot-{family}",
            ),
        ),
        on_demand_base=0,
        on_demand_percent=0 if spot else 100,
        labels=labels,
        taints=(Taint(GPU, "true"),) if count else (),
        allocatable={**offered, GPU: count} if count else offered,
        drain_timeout_seconds=900,
    )


def queues(known: Config) -> Rules:
    """The lab's queue in Kueue: one group of users, physical machines before each pool."""
    physical = {"cpu": TITANS.cpu, "memory": TITANS.memory << 20, GPU: TITANS.gpus}
    flavor = Flavor("physical.titan", labels={POOL: TITANS.labels[POOL]})
    own = Choice(flavor, topology=True, checked=False)
    return of_groups(
        known.groups, [(own, {name: amount * TITANS.count for name, amount in physical.items()})]
    )
