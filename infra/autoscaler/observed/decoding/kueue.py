"""Kueue's queues: waiting workloads, holders of quota, and the quota itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.autoscaler.node_properties import Resources
from infra.autoscaler.observed.decoding import facts
from infra.autoscaler.observed.snapshot import (
    GangSet,
    Holding,
    Owner,
    Queued,
    Queues,
)

_DEPTH: Final = 32
"""Maximum depth of nested cohorts: Kueue refuses cycles, but a watch may show half of a change."""


def find(caches: Mapping[str, Mapping[str, Any]]) -> Queues | None:
    """The queues; None without a ClusterQueue."""
    queues: Mapping[str, facts.Quota] = caches.get("ClusterQueue", {})
    if not queues:
        return None
    cohorts: Mapping[str, facts.Quota] = caches.get("Cohort", {})
    local: Mapping[str, str] = caches.get("LocalQueue", {})
    workloads: Mapping[str, facts.Workload] = caches.get("Workload", {})
    sources = {name: _source(each, cohorts) for name, each in queues.items()}
    waiting, holding = [], []
    for key, each in workloads.items():
        if each.over:
            continue
        if each.reserved is None:
            queue = local.get(f"{each.namespace}/{each.local_queue}", "")
            waiting.append(_queued(key, each, queue if queue in queues else ""))
        elif each.queue in sources:
            holding.append(_holding(each, each.reserved, sources[each.queue]))
    return Queues(
        waiting=tuple(sorted(waiting, key=lambda each: (-each.priority, each.since, each.key))),
        holding=tuple(holding),
        quotas=_quotas(queues, cohorts, sources),
        sources=sources,
        offers={name: tuple(each.flavors) for name, each in queues.items()},
    )


def _source(queue: facts.Quota, cohorts: Mapping[str, facts.Quota]) -> str:
    """The key of the quota that a ClusterQueue shares."""
    return f"cohort/{_root(queue.parent, cohorts)}" if queue.parent else f"queue/{queue.name}"


def _root(name: str, cohorts: Mapping[str, facts.Quota]) -> str:
    """The root cohort of a cohort. A cohort without an object exists all the same."""
    for _ in range(_DEPTH):
        if name not in cohorts or not cohorts[name].parent:
            break
        name = cohorts[name].parent
    return name


def _quotas(
    queues: Mapping[str, facts.Quota], cohorts: Mapping[str, facts.Quota], sources: Mapping[str, str]
) -> dict[str, dict[str, Resources]]:
    found: dict[str, dict[str, dict[str, int]]] = {source: {} for source in sources.values()}
    shares = [(sources[name], each) for name, each in queues.items()]
    shares += [(f"cohort/{_root(name, cohorts)}", each) for name, each in cohorts.items()]
    for source, each in shares:
        for flavor, amounts in each.flavors.items() if source in found else ():
            total = found[source].setdefault(flavor, {})
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
    return {source: dict(each) for source, each in found.items()}


def _queued(key: str, each: facts.Workload, queue: str) -> Queued:
    owner = next(iter(each.owners), Owner("Workload", each.name, ""))
    return Queued(
        key=key,
        namespace=each.namespace,
        kind=owner.kind,
        name=owner.name,
        queue=queue,
        priority=each.priority,
        since=each.ordered,
        seconds=each.seconds,
        sets=tuple(GangSet(part.template.shape, part.count) for part in each.parts),
    )


def _holding(each: facts.Workload, reserved: float, quota: str) -> Holding:
    return Holding(
        quota=quota,
        amounts=each.usage,
        since=reserved if each.started is None else each.started,
        admitted=each.started is not None,
        seconds=each.seconds,
    )
