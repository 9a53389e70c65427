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
"""The code of a bar for as long as somebody keeps a group from launching."""

_PASSING: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Taints of a node that is not up yet, which go by themselves."""

_GENERAL: Final = frozenset({"cpu", "memory", "ephemeral-storage", PODS})
"""What every machine has from the first moment on."""

_LINGERS: Final = 120.0
"""Seconds for which such a taint may stay on a node that is ready: another controller takes it off."""

_GONE_AFTER: Final = 120.0
"""Seconds that a node which its group does not know must have been silent before it counts as gone: AWS's
lists may be older than the cluster's."""


def build(snapshot: Snapshot, memory: Memory, config: Config, now: float) -> ClusterState:
    """What there is, what state it is in, and what waits."""
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
            continue  # It sleeps, or is about to, and comes back when its group wants it.
        found = instances.get(node.instance) if of_instance.get(node.instance) is node else None
        if found is None and node.ready and node.instance and node.instance not in instances:
            # A name that was given out again before the node of the one that had it was gone: the kubelet
            # goes on with that, and what it says of its instance can't be changed.
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
    """Instance → its node. Of two, left over from another name, the one that lives: the other must not pass
    for the machine."""
    found: dict[str, Node] = {}
    for node in nodes:
        known = found.get(node.instance)
        if known is None or (known.ready, known.created) < (node.ready, node.created):
            found[node.instance] = node
    found.pop("", None)
    return found


def present_units(state: GroupState) -> int:
    """Units of a group's instances as AWS counts them against its size: those that boot among them, and those
    that it is about to take back."""
    return sum(instance.weight for instance in state.instances if _counts(instance))


def _counts(instance: Instance) -> bool:
    return not instance.leaving and not instance.warm and not _aside(instance)


def _aside(instance: Instance) -> bool:
    """Whether somebody took it out of service by hand: its group does not count it."""
    return "Standby" in instance.lifecycle


# --- pods ---------------------------------------------------------------------------------------------------


def _pods(
    pods: Iterable[Pod], up: Container[str]
) -> tuple[Mapping[str, Sequence[Pod]], Mapping[str, Sequence[Pod]], list[Pod]]:
    """Work by node, daemons by node, and what waits for a place.

    A pod that preemption makes room for counts where its room is made, and waits for nothing of ours; where
    that node is not up any more, it waits like any other.
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
        # What its agents have not reported yet is known of its group; other taints are the boot's.
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
    """A node without an instance that we see: a physical machine, a master, one whose region is silent, or
    one whose instance is gone."""
    known = group in states
    # One of a pool that is configured no more has no group to ask; EC2 is asked before its node is deleted.
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
        # One that its group has let go is nobody's.
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
    # A taint of ours that nobody remembers, on a node that is down, is from before a warm pool's sleep.
    if _draining(node, memory) and (node.ready or _drained(node, memory)):
        return "draining"
    if node.ready and _closed(node):
        return "closed"
    if not node.ready or (full.get(GPU) and not node.allocatable.get(GPU)):
        # What has held work was up: pods are bound to nodes that are. GPUs that are gone for a while, as
        # when their plugin is replaced, take no work and end none.
        if worked or not (node.ready or _boots(node, instance, memory, config, now)):
            return "closed" if node.ready else "unready"
        late = now >= memory.boots.get(instance.id, now) + config.boot_timeout
        return "stuck" if late else "booting"
    if _aside(instance):
        return "closed"
    # Beyond that time it is what it is, and not lost: it takes what fits it.
    return "booting" if now - node.created < config.boot_timeout and _unfinished(node, group) else "ready"


def _unfinished(node: Node, group: Group) -> bool:
    """Whether a node that is ready is not yet what its group's machines are: agents have a taint to take off
    (network, drivers, labels), or GPUs and adapters to tell of."""
    mine = {(each.key, each.effect) for each in group.taints}
    return bool(_awaited(node, group)) or any(
        each.effect in ("NoSchedule", "NoExecute") and (each.key, each.effect) not in mine
        for each in node.taints
    )


def _awaited(node: Node, group: Group) -> list[str]:
    """GPUs, their slices, adapters: those of which the smallest machine of its group has more."""
    return [
        name
        for name, amount in group.allocatable.items()
        if name not in _GENERAL and node.allocatable.get(name, 0) < amount
    ]


def _lasting(node: Node, now: float) -> tuple[Taint, ...]:
    """A node's taints, without those that go by themselves now that it is ready."""
    if not node.ready or now - node.since >= _LINGERS:
        return node.taints
    return tuple(each for each in node.taints if each.key not in _PASSING)


def _boots(node: Node, instance: Instance, memory: Memory, config: Config, now: float) -> bool:
    """Whether it is still on its way up, rather than up before and now not."""
    if instance.id in memory.boots or instance.lifecycle.startswith("Pending"):
        return True  # The latter also of one that comes out of a warm pool, as old as it may be.
    return now - max(node.created, instance.launched or 0.0) < config.boot_timeout


def _closed(node: Node) -> bool:
    return node.unschedulable or node.sick


def _draining(node: Node, memory: Memory) -> bool:
    return _drained(node, memory) or any(each.key == DRAIN_TAINT for each in node.taints)


def _drained(node: Node, memory: Memory) -> bool:
    """Whether it is remembered to be on its way out: it, and not one that had its name before."""
    drain = memory.drains.get(node.name)
    return drain is not None and drain.instance == node.instance


def _by_choice(node: Node, instance: Instance, memory: Memory) -> bool:
    """Whether it may be had back: nothing was asked to leave yet, and nothing ends it in any case."""
    drain = memory.drains.get(node.name)
    return (
        node.ready
        and not _closed(node)
        and (drain is None or (drain.stage == "tainted" and not drain.forced))
        and not _aside(instance)
    )


# --- groups -------------------------------------------------------------------------------------------------

_Seen = Mapping[tuple[str, str], Resources]
"""(group, type) → what its machines really offer, the least of them."""


def _seen(
    nodes: Iterable[Node], instances: Mapping[str, tuple[str, Instance]], groups: Mapping[str, Group]
) -> _Seen:
    """What full-grown nodes offer: those that have all of their GPUs."""
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
        # What AWS takes back is replaced by its group, which may have to wait until it is gone.
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
    """Units of a group that can't be read which are on their way for all that we know: what we asked for a
    while ago, less what has joined. One answer that fails must not have all of it bought elsewhere."""
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
    """Why a group starts nothing, whatever is asked of it."""
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
    """What one unit offers: as seen, and as the catalogue has it for types that nobody has seen."""
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
    """What one instance will offer when it is up."""
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
    """USD an hour of the next unit: at the group's mix of markets, and of what its types cost."""
    share = 1.0 if present < group.on_demand_base else group.on_demand_percent / 100
    on_demand = [kind.on_demand / max(1, kind.weight) for kind in group.types if kind.on_demand]
    spot = [price / max(1, kind.weight) for kind in group.types if (price := _spot(kind, group.zones, seen))]
    # On demand the first type that there is; a spot request takes any of them.
    dear = on_demand[0] if on_demand else 0.0
    cheap = sum(spot) / len(spot) if spot else dear
    return share * dear + (1.0 - share) * cheap


def _spot(kind: PricedType, zones: Iterable[str], seen: Mapping[str, float]) -> float | None:
    known = [price for zone in zones if (price := seen.get(f"{zone}/{kind.name}"))]
    return min(known) if known else kind.spot


def _notes(groups: Iterable[Group], states: Mapping[str, GroupState]) -> dict[str, str]:
    """Group → what would end its machines behind our back, or keep it from growing."""
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
