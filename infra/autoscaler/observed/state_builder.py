"""Builds the state from the snapshot: machines with their nodes, pods and states; groups with what is
starting.

::

    instance ──┬── node ──── pods          a Machine, in one State
               │
    group ─────┴── template, units         a GroupView

A node belongs to a group by its instance; where its region could not be read, by its labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from infra.autoscaler import backoff
from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.node_properties import Resources, Taint
from infra.autoscaler.observed import node_affinity
from infra.autoscaler.observed.cluster_state import ClusterState, GroupView, Machine, State, Template
from infra.autoscaler.observed.node_affinity import REGION, TYPE, ZONE
from infra.autoscaler.observed.snapshot import (
    DRAIN_TAINT,
    GPU,
    OF_A_MACHINE,
    PODS,
    SCHEDULER,
    GroupState,
    Instance,
    Node,
    Pod,
    Snapshot,
)
from infra.catalogue.labels import POOL, SITE

SUSPENDED: Final = "suspended"
"""The code of a back-off that lasts while somebody suspends a group's launches."""

_PASSING: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Taints of a node that is not up yet, which are removed automatically."""

_GENERAL: Final = frozenset({"cpu", "memory", "ephemeral-storage", PODS})
"""Resources that every machine has from the start."""

_LINGERS: Final = 120.0
"""Seconds for which such a taint may remain on a ready node: another controller removes it."""

_GONE_AFTER: Final = 120.0
"""Seconds without a heartbeat after which a node unknown to its group counts as gone, as AWS's lists may be
older than the cluster's."""


def build(snapshot: Snapshot, memory: Memory, config: Config, now: float) -> ClusterState:
    """The machines with their states, the groups, and the pending pods."""
    by_name = {group.name: group for group in config.groups}
    instances = {
        instance.id: (name, instance)
        for name, state in snapshot.groups.items()
        if name in by_name
        for instance in state.instances
        if not instance.warm
    }
    work, daemons, pending = _pods(snapshot.pods, {node.name for node in snapshot.nodes if node.ready})
    places = {(group.pool, group.site): group.name for group in config.groups}
    seen = _seen(snapshot.nodes, instances, by_name)
    groups = {
        group.name: _group(group, snapshot.groups.get(group.name), seen, snapshot, memory, config, now)
        for group in config.groups
    }

    machines: list[Machine] = []
    joined: set[str] = set()
    warm = {each.id for state in snapshot.groups.values() for each in state.instances if each.warm}
    of_instance = _by_instance(snapshot.nodes)
    hosts = {
        each[1].host: each for each in instances.values() if each[1].host and each[1].id not in of_instance
    }
    for node in snapshot.nodes:
        mine = (work.get(node.name, ()), daemons.get(node.name, ()))
        if node.instance in warm and not (node.ready and mine[0]):
            continue  # It is in a warm pool or about to enter it, and returns when its group needs it.
        found = instances.get(node.instance) if of_instance.get(node.instance) is node else None
        if found is None and node.ready and node.instance and node.instance not in instances:
            # The name was reused before the previous instance's node was gone: the kubelet adopts that Node,
            # whose provider id cannot be changed.
            found = hosts.get(node.name)
        if found is not None:
            joined.add(found[1].id)
            machines.append(_joined(node, found[1], groups[found[0]], mine, seen, memory, config, now))
            continue
        name = places.get((node.labels.get(POOL, ""), node.labels.get(SITE, ""))) if node.instance else None
        machines.append(_alone(node, name, mine, snapshot.groups, memory, now))
    machines.extend(
        _bare(instance, groups[name], seen, memory, config, now)
        for identity, (name, instance) in instances.items()
        if identity not in joined and instance.state != "terminated"
    )
    machines.sort(key=lambda each: each.name)

    return ClusterState(
        at=now,
        machines=tuple(machines),
        groups=groups,
        pending=tuple(pending),
        unready=sum(each.state == "unready" for each in machines),
        ready=sum(each.node is not None and each.node.ready for each in machines if each.state != "stuck"),
        notes=_notes(config.groups, snapshot.groups),
    )


def _by_instance(nodes: Iterable[Node]) -> Mapping[str, Node]:
    """Instance → its node. If a name was reused and there are two, the live one is used."""
    found: dict[str, Node] = {}
    for node in nodes:
        known = found.get(node.instance)
        if known is None or (known.ready, known.created) < (node.ready, node.created):
            found[node.instance] = node
    found.pop("", None)
    return found


def present_units(state: GroupState) -> int:
    """Units of a group's instances as AWS counts them against its size, including those that boot, and those
    about to be interrupted."""
    return sum(instance.weight for instance in state.instances if _counts(instance))


def _counts(instance: Instance) -> bool:
    return not instance.leaving and not instance.warm and not _aside(instance)


def _aside(instance: Instance) -> bool:
    """Whether it was put into standby or detached by hand: its group does not count it."""
    return "Standby" in instance.lifecycle


# --- pods ---------------------------------------------------------------------------------------------------


def _pods(
    pods: Iterable[Pod], up: Container[str]
) -> tuple[Mapping[str, Sequence[Pod]], Mapping[str, Sequence[Pod]], list[Pod]]:
    """Pods by node, DaemonSet pods by node, and pending pods.

    A pod for which preemption makes room counts on that node, and is not pending; if the node is down, it is
    pending like any other.
    """
    work: defaultdict[str, list[Pod]] = defaultdict(list)
    daemons: defaultdict[str, list[Pod]] = defaultdict(list)
    pending: list[Pod] = []
    for pod in pods:
        if pod.over:
            continue
        place = pod.node or (pod.nominated if pod.nominated in up else "")
        if pod.daemon:
            if place:
                daemons[place].append(pod)
        elif place:
            work[place].append(pod)
        elif pod.phase == "Pending" and not pod.gated and not pod.deleting and pod.scheduler == SCHEDULER:
            pending.append(pod)
    return work, daemons, pending


# --- machines -----------------------------------------------------------------------------------------------

_Pods = tuple[Sequence[Pod], Sequence[Pod]]


def _joined(
    node: Node,
    instance: Instance,
    group: GroupView,
    pods: _Pods,
    seen: _Seen,
    memory: Memory,
    config: Config,
    now: float,
) -> Machine:
    """An instance with its node."""
    full = _offered(group, instance, seen)
    state = _state(node, instance, group.group, full, bool(pods[0]), memory, config, now)
    labels, taints, allocatable = node.labels, _lasting(node, now), node.allocatable
    if state in ("booting", "stuck"):
        # Labels that its agents have not reported yet are taken from its group; other taints are from
        # booting.
        labels = {**_labels(group.template, instance), **node.labels}
        mine = {(each.key, each.effect) for each in group.template.taints}
        taints = tuple(each for each in node.taints if (each.key, each.effect) in mine)
        allocatable = {**full, **{name: amount for name, amount in node.allocatable.items() if amount}}
        allocatable |= {name: group.group.allocatable[name] for name in _awaited(node, group.group)}
    back = state == "draining" and _by_choice(node, instance, memory)
    if back:
        taints = tuple(each for each in taints if each.key != DRAIN_TAINT)
    return Machine(
        name=node.name,
        state=state,
        node=node,
        instance=instance,
        group=group.group.name,
        zone=instance.zone or node.labels.get(ZONE, ""),
        labels=labels,
        taints=taints,
        allocatable=allocatable,
        pods=tuple(pods[0]),
        daemons=tuple(pods[1]),
        units=instance.weight,
        back=back,
    )


def _alone(
    node: Node,
    group: str | None,
    pods: _Pods,
    states: Mapping[str, GroupState],
    memory: Memory,
    now: float,
) -> Machine:
    """A node without a known instance: a physical machine, a master, a node in a region that could not be
    read, or one whose instance is gone."""
    known = group in states
    # A node of a removed pool has no group to look it up in; EC2 is queried before its Node is deleted.
    former = group is None and bool(node.instance) and POOL in node.labels
    gone = (known or former) and not node.ready and now - node.since >= _GONE_AFTER
    state: State
    if gone:
        state = "gone"
    elif _draining(node, memory):
        state = "draining"
    elif not node.ready:
        state = "unready"
    else:
        state = "closed" if _closed(node) else "ready"
    return Machine(
        name=node.name,
        state=state,
        node=node,
        instance=None,
        # An instance detached from its group belongs to none.
        group=None if known and not gone else group,
        zone=node.labels.get(ZONE, ""),
        labels=node.labels,
        taints=_lasting(node, now),
        allocatable=node.allocatable,
        pods=tuple(pods[0]),
        daemons=tuple(pods[1]),
    )


def _bare(
    instance: Instance, group: GroupView, seen: _Seen, memory: Memory, config: Config, now: float
) -> Machine:
    """An instance whose node has not joined."""
    state: State = "booting"
    if instance.leaving or instance.interrupted is not None:
        state = "leaving"
    elif now >= memory.boots.get(instance.id, now) + config.boot_timeout:
        state = "stuck"
    elif _aside(instance):
        state = "closed"
    return Machine(
        name=instance.id,
        state=state,
        node=None,
        instance=instance,
        group=group.group.name,
        zone=instance.zone,
        labels=_labels(group.template, instance),
        taints=group.template.taints,
        allocatable=_offered(group, instance, seen),
        units=instance.weight,
    )


def _state(
    node: Node,
    instance: Instance,
    group: Group,
    full: Resources,
    worked: bool,
    memory: Memory,
    config: Config,
    now: float,
) -> State:
    if instance.state == "terminated":
        return "gone"
    if instance.leaving or instance.interrupted is not None:
        return "leaving"
    # A taint of ours without memory, on a node that is down, is from before the instance entered a warm pool.
    if _draining(node, memory) and (node.ready or _drained(node, memory)):
        return "draining"
    if node.ready and _closed(node):
        return "closed"
    if not node.ready or (full.get(GPU) and not node.allocatable.get(GPU)):
        # A node that has had pods was up, as pods are bound only to such nodes. While GPUs are missing, as
        # when their plugin is replaced, it accepts no work for them, and is not terminated.
        if worked or not (node.ready or _boots(node, instance, memory, config, now)):
            return "closed" if node.ready else "unready"
        late = now >= memory.boots.get(instance.id, now) + config.boot_timeout
        return "stuck" if late else "booting"
    if _aside(instance):
        return "closed"
    # After that time it is used as it is: it accepts what fits.
    return "booting" if now - node.created < config.boot_timeout and _unfinished(node, group) else "ready"


def _unfinished(node: Node, group: Group) -> bool:
    """Whether a ready node is incomplete: agents still have to remove a taint (network, drivers, labels), or
    to report GPUs and EFA interfaces."""
    mine = {(each.key, each.effect) for each in group.taints}
    return bool(_awaited(node, group)) or any(
        each.effect in ("NoSchedule", "NoExecute") and (each.key, each.effect) not in mine
        for each in node.taints
    )


def _awaited(node: Node, group: Group) -> list[str]:
    """GPUs, MIG slices and EFA interfaces of which it reports less than the smallest machine of its group
    has."""
    return [
        name
        for name, amount in group.allocatable.items()
        if name not in _GENERAL and node.allocatable.get(name, 0) < amount
    ]


def _lasting(node: Node, now: float) -> tuple[Taint, ...]:
    """A node's taints, without those that are removed automatically now that it is ready."""
    if not node.ready or now - node.since >= _LINGERS:
        return node.taints
    return tuple(each for each in node.taints if each.key not in _PASSING)


def _boots(node: Node, instance: Instance, memory: Memory, config: Config, now: float) -> bool:
    """Whether it is still booting, rather than was up before and is not now."""
    if instance.id in memory.boots or instance.lifecycle.startswith("Pending"):
        return True  # The latter also holds for an old instance that leaves a warm pool.
    return now - max(node.created, instance.launched or 0.0) < config.boot_timeout


def _closed(node: Node) -> bool:
    return node.unschedulable or node.sick


def _draining(node: Node, memory: Memory) -> bool:
    return _drained(node, memory) or any(each.key == DRAIN_TAINT for each in node.taints)


def _drained(node: Node, memory: Memory) -> bool:
    """Whether this node, and not an earlier one with its name, is remembered as draining."""
    drain = memory.drains.get(node.name)
    return drain is not None and drain.instance == node.instance


def _by_choice(node: Node, instance: Instance, memory: Memory) -> bool:
    """Whether its drain can be undone: no pod was asked to leave yet, and nothing terminates it in any
    case."""
    drain = memory.drains.get(node.name)
    return (
        node.ready
        and not _closed(node)
        and (drain is None or (drain.stage == "tainted" and not drain.forced))
        and not _aside(instance)
    )


# --- groups -------------------------------------------------------------------------------------------------

_Seen = Mapping[tuple[str, str], Resources]
"""(group, type) → the minimum that its machines actually offer."""


def _seen(
    nodes: Iterable[Node], instances: Mapping[str, tuple[str, Instance]], groups: Mapping[str, Group]
) -> _Seen:
    """What complete nodes offer: those that report all of their GPUs."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for node in nodes:
        joined = instances.get(node.instance) if node.provider and node.ready and not node.sick else None
        if joined is None:
            continue
        name, instance = joined
        expected = groups[name].allocatable
        if any(
            node.allocatable.get(each, 0) < amount * (1 if each in OF_A_MACHINE else instance.weight)
            for each, amount in expected.items()
            if each not in _GENERAL
        ):
            continue
        least = found.setdefault((name, instance.type), dict(node.allocatable))
        for each, amount in least.items():
            if (here := node.allocatable.get(each, 0)) < amount:
                least[each] = here
    return found


def _group(
    group: Group,
    state: GroupState | None,
    seen: _Seen,
    snapshot: Snapshot,
    memory: Memory,
    config: Config,
    now: float,
) -> GroupView:
    bar = backoff.barred(group, memory.backoffs, now)
    if bar is None and state is not None and (why := _still(state)) is not None:
        bar = Backoff(SUSPENDED, why, now, now, now + config.backoff_min, 1)
    zones = {
        zone: closed
        for zone in group.zones
        if (closed := backoff.in_force(memory.backoffs, f"{group.name}/{zone}", now)) is not None
    }
    present = 0
    if state is not None:
        # The group replaces an interrupted instance, possibly only after it is gone.
        present = present_units(state) - sum(
            each.weight for each in state.instances if each.interrupted is not None and _counts(each)
        )
    coming = 0
    if state is not None and bar is None:
        coming = max(0, state.desired - present)
    elif state is None and bar is None:
        coming = _asked(group, snapshot.nodes, memory, config, now)
    return GroupView(
        group=group,
        state=state,
        template=_template(group, present, seen, snapshot),
        present=present,
        coming=coming,
        backoff=bar,
        closed_zones=zones,
    )


def _asked(group: Group, nodes: Iterable[Node], memory: Memory, config: Config, now: float) -> int:
    """Units of a group that cannot be read which are probably starting: what was requested recently, less
    what has joined. Otherwise one failed response would make other groups launch all of it."""
    resize = memory.resizes.get(group.name)
    if resize is None or now - resize.at >= config.boot_timeout:
        return 0
    place = (group.pool, group.site)
    up = sum(
        node.ready and (node.labels.get(POOL), node.labels.get(SITE)) == place and bool(node.instance)
        for node in nodes
    )
    return max(0, min(resize.to, group.max) - up)


def _still(state: GroupState) -> str | None:
    """Why a group launches nothing, whatever its size."""
    if state.deleting:
        return "it is being deleted"
    return "its process Launch is suspended" if "Launch" in state.suspended else None


def _template(group: Group, present: int, seen: _Seen, snapshot: Snapshot) -> Template:
    labels = dict(group.labels)
    labels.setdefault(REGION, group.region)
    if len(group.zones) == 1:
        labels.setdefault(ZONE, group.zones[0])
    if len(group.types) == 1:
        labels.setdefault(TYPE, group.types[0].name)
    offered = _unit(group, seen)
    return Template(
        group=group,
        labels=labels,
        taints=group.taints,
        allocatable=offered,
        overhead=node_affinity.overhead(
            snapshot.daemons,
            labels,
            group.taints,
            allocatable=offered,
            zones=group.zones,
            types=[kind.name for kind in group.types],
        ),
        price=_price(group, present, snapshot.prices),
    )


def _unit(group: Group, seen: _Seen) -> Resources:
    """What one unit offers: as observed, or by the catalogue for types that were not observed."""
    offers = [
        {
            name: amount if name in OF_A_MACHINE else amount // kind.weight
            for name, amount in seen[group.name, kind.name].items()
        }
        if (group.name, kind.name) in seen
        else group.allocatable
        for kind in group.types
    ]
    if not offers:
        return group.allocatable
    names = {name for offer in offers for name in offer}
    return {name: least for name in sorted(names) if (least := min(o.get(name, 0) for o in offers))}


def _offered(group: GroupView, instance: Instance, seen: _Seen) -> Resources:
    """What an instance will offer when it is up."""
    known = seen.get((group.group.name, instance.type))
    if known is not None:
        return known
    return {
        name: amount if name in OF_A_MACHINE else amount * instance.weight
        for name, amount in group.group.allocatable.items()
    }


def _labels(template: Template, instance: Instance) -> Mapping[str, str]:
    return {
        **template.labels,
        **({ZONE: instance.zone} if instance.zone else {}),
        **({TYPE: instance.type} if instance.type else {}),
    }


def _price(group: Group, present: int, seen: Mapping[str, float]) -> float:
    """USD per hour of the next unit: by the group's mix of markets, and the prices of its types."""
    share = 1.0 if present < group.on_demand_base else group.on_demand_percent / 100
    on_demand = [kind.on_demand / max(1, kind.weight) for kind in group.types if kind.on_demand]
    spot = [price / max(1, kind.weight) for kind in group.types if (price := _spot(kind, group.zones, seen))]
    # On-Demand uses the first available type; Spot may use any of them.
    dear = on_demand[0] if on_demand else 0.0
    cheap = sum(spot) / len(spot) if spot else dear
    return share * dear + (1.0 - share) * cheap


def _spot(kind: PricedType, zones: Iterable[str], seen: Mapping[str, float]) -> float | None:
    known = [price for zone in zones if (price := seen.get(f"{zone}/{kind.name}"))]
    return min(known) if known else kind.spot


def _notes(groups: Iterable[Group], states: Mapping[str, GroupState]) -> dict[str, str]:
    """Group → settings that would terminate its machines without us, or prevent launches."""
    found: dict[str, str] = {}
    for group in groups:
        state = states.get(group.name)
        if state is None:
            continue
        wrong = []
        if "AZRebalance" not in state.suspended and len(group.zones) > 1:
            wrong.append("zone rebalancing is on: it ends machines that work, to even zones out")
        if not state.protects:
            wrong.append("new instances are not protected from scale-in: AWS may choose which ones to end")
        if group.hook not in state.hooks:
            wrong.append(f"it has no hook {group.hook} on termination: what AWS ends is not drained")
        wrong.extend(
            f"its process {process} is suspended"
            for process in ("Launch", "Terminate", "HealthCheck", "ReplaceUnhealthy")
            if process in state.suspended
        )
        if wrong:
            found[group.name] = "; ".join(wrong)
    return found
