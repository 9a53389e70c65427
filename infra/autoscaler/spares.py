"""Starts the idle machines that a pool keeps ready (``spare``).

`candidates.spare` keeps them. Machines that boot, that are requested, or whose drain can be undone count as
spare, so that none is requested twice. When work takes a spare machine, another one is started.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.autoscaler.config import Config, Group
from infra.autoscaler.limits import Ledger, standing
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.placement.capacity import usable
from infra.autoscaler.scale_down.candidates import spare


def more(
    view: ClusterState, held: frozenset[str], sizes: Mapping[str, int], memory: Memory, config: Config
) -> dict[str, int]:
    """Groups that grow for spare machines → their new desired capacity, including ``sizes``.

    In overflow order, within all limits. ``held``: machines that work will use.
    """
    lacking = {pool: count for pool, count in spare(view, held, memory, config).items() if count > 0}
    if not lacking:
        return {}
    for machine in view.machines:
        idle = machine.back or (machine.state == "booting" and not machine.pods)
        if idle and machine.group is not None and machine.name not in held:
            pool = view.groups[machine.group].group.pool
            lacking[pool] = lacking.get(pool, 0) - 1
    for each in view.groups.values():
        lacking[each.group.pool] = lacking.get(each.group.pool, 0) - each.coming // _weight(each.group)
    units = {name: sizes.get(name, standing(each)) for name, each in view.groups.items()}
    ledger = Ledger(view.groups.values(), units, view.machines, config)
    found = {}
    for name, each in view.groups.items():
        weight = _weight(each.group)
        count = min(lacking.get(each.group.pool, 0), ledger.room(name) // weight) if usable(each) else 0
        if count > 0:
            ledger.take(name, count * weight)
            lacking[each.group.pool] -= count
            found[name] = ledger.units[name]
    return found


def _weight(group: Group) -> int:
    """Capacity units of a machine; the minimum of its types."""
    return min((each.weight for each in group.types), default=1)
