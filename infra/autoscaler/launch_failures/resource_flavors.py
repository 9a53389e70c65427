"""Kueue's flavors, which are closed to new workloads while their pool has no capacity anywhere.

Kueue counts quota but does not know about capacity: it would assign a job the same flavor again and again. It
skips a flavor with a taint that no workload tolerates until the taint is removed (Kueue, ``ResourceFlavor``:
``nodeTaints``). Running and admitted workloads are not affected.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from infra.autoscaler.backoff import clock
from infra.autoscaler.decision import HoldFlavor
from infra.autoscaler.launch_failures.status_messages import words
from infra.autoscaler.limits import standing
from infra.autoscaler.observed.cluster_state import ClusterState, GroupView
from infra.autoscaler.observed.snapshot import Flavor, Gang
from infra.catalogue.labels import POOL


def exhausted(view: ClusterState, booked: Container[str] = ()) -> dict[str, str]:
    """Pool → why none of its groups can launch a machine, as text.

    Excludes pools that are only at their maximum size, as Kueue counts that itself, and pools with an idle
    machine, unless it is ``booked``.
    """
    pools: dict[str, list[GroupView]] = {}
    for group in view.groups.values():
        if group.group.max:
            pools.setdefault(group.group.pool, []).append(group)
    idle = {
        view.groups[machine.group].group.pool
        for machine in view.machines
        if machine.group is not None
        and machine.group in view.groups
        and machine.state == "ready"
        and not machine.pods
        and machine.name not in booked
    }
    return {
        pool: "; ".join(_barred(group) for group in groups if group.backoff is not None)
        for pool, groups in pools.items()
        if pool not in idle
        and any(group.backoff is not None for group in groups)
        and all(group.backoff is not None or _full(group) for group in groups)
    }


def _full(group: GroupView) -> bool:
    return group.state is None or standing(group) >= min(group.group.max, group.state.max)


def _barred(group: GroupView) -> str:
    bar = group.backoff
    assert bar is not None
    return f"{group.group.site}: {words(bar.code)} until {clock(bar.until)}"


def of(gang: Gang, flavors: Mapping[str, Flavor]) -> str:
    """The pool of the flavor that Kueue assigned to a request; empty if the request is not Kueue's."""
    pools = {dict(each.shape.selector).get(POOL, "") for each in gang.sets}
    known = {each.pool for each in flavors.values()} - {""}
    return next(iter(pools)) if len(pools) == 1 and pools <= known else ""


def changes(flavors: Mapping[str, Flavor], closed: Mapping[str, str]) -> Iterator[HoldFlavor]:
    """The writes for flavors that are not in the desired state."""
    for name, flavor in sorted(flavors.items()):
        if flavor.pool and flavor.held != (flavor.pool in closed):
            why = closed.get(flavor.pool, "its machines may be available again")
            yield HoldFlavor(name, not flavor.held, why)
