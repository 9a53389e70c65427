"""Cluster-wide information for users, who can otherwise read only their own namespaces: free capacity, pools
without capacity, queue positions, and latest start times.

JSON values for the ConfigMap ``availability``. Times are absolute (RFC 3339, UTC), so that they change only
if the state does, and start times are rounded up to minutes. ``version`` is that of the format: within one
version, fields are only added, never removed or redefined.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from infra.autoscaler.config import Config
from infra.autoscaler.launch_failures.status_messages import words
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import node_affinity
from infra.autoscaler.observed.cluster_state import ClusterState, GroupView, Machine
from infra.autoscaler.observed.snapshot import GPU, Flavor, GangSet, NodeTerm, Queued, Queues, Shape
from infra.autoscaler.observed.state_builder import SUSPENDED
from infra.autoscaler.reporting import latest_start
from infra.autoscaler.reporting.latest_start import Forecast, Held, Part, Start, Work
from infra.catalogue.labels import GPU_LIMIT, GPU_MODEL, LIMITED_GPUS, POOL, SITE

VERSION: Final = 1
MOST: Final = 3000
"""Maximum queue entries that are published: a ConfigMap holds 1 MiB."""
SETTLED: Final = 60.0
"""Seconds after which work with quota that has not started must be waiting for something else."""

_MASTER: Final = "node-role.kubernetes.io/control-plane"
WHY: Final[Mapping[str, str]] = {
    "too-large": "it asks for more than there is of all that it may use",
    "no-time": "something ahead of it declares no time",
    "no-queue": "its queue is not there",
    "no-place": "there is quota for it, but no place on machines yet",
}
"""Why a start time is unknown."""


def content(
    view: ClusterState,
    queues: Queues | None,
    flavors: Mapping[str, Flavor],
    memory: Memory,
    config: Config,
    startable: Mapping[str, float],
) -> tuple[dict[str, Any], dict[str, float]]:
    """The contents, and the next ``startable``: Workload → since when there is quota for it.

    ``queue`` and ``quotas`` are null without Kueue.
    """
    values: dict[str, Any] = {
        "version": VERSION,
        "machines": _machines(view, memory),
        "no_capacity": _no_capacity(view),
        "queue": None,
        "queue_cut": 0,
        "quotas": None,
    }
    if queues is None:
        return values, {}
    opens = _opens(view, flavors)
    starts, left = _starts(queues, flavors, opens, config, view.at)
    now = {
        each.key: startable.get(each.key, view.at)
        for each, start in zip(queues.waiting, starts, strict=True)
        if isinstance(start, Start) and start.at is not None and start.at <= view.at
    }
    values["queue"] = _queue(queues.waiting, starts, now, view.at)[:MOST]
    values["queue_cut"] = max(0, len(queues.waiting) - MOST)
    values["quotas"] = _quotas(queues, flavors, opens, left)
    return values, now


# --- machines -----------------------------------------------------------------------------------------------


def _machines(view: ClusterState, memory: Memory) -> list[dict[str, Any]]:
    """A row per site, pool and GPU model with a machine that accepts work, or is starting."""
    booked = {
        name for each in memory.bookings.values() if each.until > view.at for name in each.machines
    }  # machines reserved for a gang
    ready: defaultdict[tuple[str, str, str], list[Machine]] = defaultdict(list)
    starting: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for machine in view.machines:
        if not machine.present or any(each.key == _MASTER for each in machine.taints):
            continue
        place = _place(machine.labels)
        if machine.state == "booting":
            starting[place] += 1
        else:
            ready[place].append(machine)
    for group in view.groups.values():
        if group.coming:
            weight = max(1, group.group.types[0].weight) if group.group.types else 1
            starting[_place(group.group.labels)] += -(-group.coming // weight)
    rows = []
    for place in sorted({*ready, *starting}):
        site, pool, model = place
        free = [0 if each.name in booked else _free(each) for each in ready[place]]
        rows.append({
            "site": site, "pool": pool or None, "model": model or None,
            "ready": len(ready[place]), "starting": starting[place],
            "gpus": sum(each.allocatable.get(GPU, 0) for each in ready[place]),
            "free": sum(free), "largest": max(free, default=0),
        })  # fmt: skip
    return rows


def _place(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get(SITE, ""), labels.get(POOL, ""), labels.get(GPU_MODEL, "")


def _free(machine: Machine) -> int:
    used = sum(
        amount
        for pod in (*machine.pods, *machine.daemons)
        for name, amount in pod.shape.requests
        if name == GPU
    )
    return max(0, machine.allocatable.get(GPU, 0) - used)


def _no_capacity(view: ClusterState) -> list[dict[str, Any]]:
    """Pools that cannot launch machines at a site now."""
    return [
        {
            "site": each.group.site,
            "pool": each.group.pool,
            # A suspended group has no known end.
            "until": None if each.backoff.code == SUSPENDED else stamp(each.backoff.until),
            "why": words(each.backoff.code),
        }
        for each in sorted(view.groups.values(), key=lambda each: (each.group.site, each.group.pool))
        if each.backoff is not None
    ]


# --- the queue ----------------------------------------------------------------------------------------------


def _opens(view: ClusterState, flavors: Mapping[str, Flavor]) -> dict[str, float]:
    """Closed flavors → until when: the earliest of their pool's back-offs."""
    pools: defaultdict[str, list[GroupView]] = defaultdict(list)
    for each in view.groups.values():
        pools[each.group.pool].append(each)
    found = {}
    for name, flavor in flavors.items():
        ends = [each.backoff.until for each in pools[flavor.pool] if each.backoff is not None]
        if flavor.held and ends:
            found[name] = min(ends)
    return found


def _starts(
    queues: Queues, flavors: Mapping[str, Flavor], opens: Mapping[str, float], config: Config, now: float
) -> tuple[list[Start | None], dict[str, Forecast]]:
    """The latest start of each waiting workload, None if its queue does not exist; and the remaining quota
    of each flavor.

    Flavors of different quotas are separate.
    """
    usable = _Usable(queues, flavors)
    held = [
        # For workloads with quota that wait for machines, time counts from the deadline of these.
        Held(
            f"{each.quota}/{flavor}",
            ((resource, amount),),
            None
            if each.seconds is None
            else each.since + each.seconds + (0.0 if each.admitted else config.boot_timeout),
        )
        for each in queues.holding
        for flavor, resource, amount in each.amounts
    ]
    known = [each for each in queues.waiting if each.queue]
    starts, left = latest_start.simulate(
        {
            f"{quota}/{name}": amounts
            for quota, those in queues.quotas.items()
            for name, amounts in those.items()
        },
        held,
        {f"{quota}/{name}": until for quota in queues.quotas for name, until in opens.items()},
        [usable.work(each) for each in known],
        now,
    )
    found = iter(starts)
    return [next(found) if each.queue else None for each in queues.waiting], left


class _Usable:
    """Which flavors work may use; cached by selectors."""

    def __init__(self, queues: Queues, flavors: Mapping[str, Flavor]) -> None:
        self._queues = queues
        self._flavors = flavors
        self._known: dict[tuple[object, ...], tuple[tuple[str, ...], tuple[str, ...] | None]] = {}

    def work(self, each: Queued) -> Work:
        """A Workload as input of the simulation."""
        return Work(tuple(part for some in each.sets for part in self._parts(each.queue, some)), each.seconds)

    def _parts(self, queue: str, pods: GangSet) -> Iterator[Part]:
        machines, limits = self._of(queue, pods.shape)
        amounts = tuple((name, amount * pods.count) for name, amount in pods.shape.requests)
        yield Part(machines, amounts)
        if limits is not None and (gpus := dict(amounts).get(GPU)):
            yield Part(limits, ((LIMITED_GPUS, gpus),))

    def _of(self, queue: str, shape: Shape) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Flavors of machines, and flavors of user limits, which Kueue assigns separately; None in a queue
        without limits."""
        key = queue, shape.selector, shape.affinity, shape.tolerations
        if key not in self._known:
            source = self._queues.sources[queue]
            offered = [self._flavors[name] for name in self._queues.offers[queue] if name in self._flavors]
            limits = [each for each in offered if any(taint.key == GPU_LIMIT for taint in each.taints)]
            machines = [each for each in offered if each not in limits]

            def taken(flavors: Sequence[Flavor]) -> tuple[str, ...]:
                return tuple(f"{source}/{each.name}" for each in flavors if takes(each, shape, flavors))

            self._known[key] = taken(machines), taken(limits) if limits else None
        return self._known[key]


def takes(flavor: Flavor, shape: Shape, beside: Sequence[Flavor]) -> bool:
    """Whether Kueue may assign a flavor to such pods. Of their selectors, only labels that any of the
    queue's flavors has are considered (Kueue, ``flavorassigner``: ``flavorSelector``)."""
    keys = {key for each in beside for key in each.labels}
    terms = shape.affinity
    if terms is not None:
        about = [tuple(each for each in term.labels if each.key in keys) for term in terms]
        # A term with only other labels may match anywhere.
        terms = None if () in about else tuple(NodeTerm(labels) for labels in about)
    asked = msgspec.structs.replace(
        shape,
        selector=tuple((key, value) for key, value in shape.selector if key in keys),
        affinity=terms,
        tolerations=(*shape.tolerations, *flavor.tolerations),
    )
    return node_affinity.obstacle(asked, flavor.labels, flavor.taints) is None


def _queue(
    waiting: Sequence[Queued], starts: Sequence[Start | None], startable: Mapping[str, float], now: float
) -> list[dict[str, Any]]:
    ahead: defaultdict[str, int] = defaultdict(int)
    gpus_ahead: defaultdict[str, int] = defaultdict(int)
    rows = []
    for each, start in zip(waiting, starts, strict=True):
        gpus = sum(dict(part.shape.requests).get(GPU, 0) * part.count for part in each.sets)
        at, why = _told(start, startable.get(each.key), now)
        rows.append({
            "namespace": each.namespace, "kind": each.kind, "name": each.name,
            "queue": each.queue or None, "priority": each.priority, "gpus": gpus,
            "position": ahead[each.queue] + 1 if each.queue else None,
            "ahead": ahead[each.queue] if each.queue else None,
            "gpus_ahead": gpus_ahead[each.queue] if each.queue else None,
            "latest_start": at, "unknown": why,
        })  # fmt: skip
        ahead[each.queue] += 1
        gpus_ahead[each.queue] += gpus
    return rows


def _told(start: Start | None, startable: float | None, now: float) -> tuple[str | None, str | None]:
    """The start time, or why it is unknown."""
    if start is None:
        return None, WHY["no-queue"]
    if start.at is None:
        return None, WHY[start.why]
    if startable is not None and now - startable >= SETTLED:
        return None, WHY["no-place"]
    return minute(start.at), None


def _quotas(
    queues: Queues, flavors: Mapping[str, Flavor], opens: Mapping[str, float], left: Mapping[str, Forecast]
) -> list[dict[str, Any]]:
    """Of flavors with GPUs: free quota now, and after all waiting work."""
    rows = []
    for quota, those in sorted(queues.quotas.items()):
        for name, amounts in those.items():
            if not amounts.get(GPU) or name not in flavors:
                continue
            labels, forecast = flavors[name].labels, left[f"{quota}/{name}"]
            later = [(minute(when), free[GPU]) for when, free in forecast.later]
            rows.append({
                "quota": quota, "flavor": name, "pool": flavors[name].pool or None,
                "model": labels.get(GPU_MODEL), "gpus": amounts[GPU],
                "free": 0 if name in opens else forecast.free[GPU],
                "closed_until": stamp(opens[name]) if name in opens else None,
                # Of several in one minute, the last.
                "later": [[when, gpus] for when, gpus in dict(later).items()],
            })  # fmt: skip
    return rows


# --- words --------------------------------------------------------------------------------------------------


def stamp(at: float) -> str:
    """RFC 3339 in UTC, rounded up to seconds."""
    return datetime.fromtimestamp(math.ceil(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def minute(at: float) -> str:
    """RFC 3339 in UTC, rounded up to minutes."""
    return stamp(math.ceil(at / 60) * 60)


def text(values: Mapping[str, Any]) -> str:
    """JSON with a line per row."""
    lines = []
    for key, value in values.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(f"    {_json(each)}" for each in value)
            lines.append(f"  {_json(key)}: [\n{rows}\n  ]")
        else:
            lines.append(f"  {_json(key)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
