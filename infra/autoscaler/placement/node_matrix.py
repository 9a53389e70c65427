"""The matrix on which pods are placed: a row per machine, with columns of integers.

Rows are existing machines, and those that a plan opens from a group's template. All changes can be rolled
back to a mark, so that a gang can be tried at several sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from infra.autoscaler.node_properties import Resources, Taint
from infra.autoscaler.observed.cluster_state import GroupView, Machine
from infra.autoscaler.observed.node_affinity import ZONE
from infra.autoscaler.observed.snapshot import (
    ATTACHABLE,
    GPU,
    Pod,
    Shape,
)
from infra.autoscaler.placement.demand import Demand, Even, Kind
from infra.autoscaler.placement.predicates import Flags, Ints, Predicates, Template
from infra.autoscaler.reasons import Reason
from infra.catalogue.labels import SITE

__all__ = [
    "BOOTING",
    "COMING",
    "NEW",
    "PHYSICAL",
    "READY",
    "Flags",
    "Ints",
    "Moved",
    "NodeMatrix",
    "Opened",
    "Put",
]

PHYSICAL, READY, BOOTING, COMING, NEW = range(5)
"""The tier of a row; lower tiers are filled first."""

_SOON: Final = 180.0
"""Seconds within which a pod that was asked to leave makes room: a new machine would take longer."""
_LATE: Final = 15.0
"""Seconds after its grace period after which a remaining pod is assumed to stay."""

_MOST: Final = 2**50
"""More than any machine has. Larger amounts are reduced to this, so that sums fit in 64 bits."""


@dataclass(frozen=True, slots=True)
class Put:
    """A placement of pods: how many on each of these rows."""

    kind: Kind
    rows: Ints
    counts: Ints


@dataclass(frozen=True, slots=True)
class Opened:
    """A row that was added."""

    row: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A row that was changed to another group, and its previous state."""

    row: int
    template: int


class NodeMatrix:
    """Rows and the pods on them."""

    def __init__(
        self, demand: Demand, groups: Sequence[GroupView], machines: Sequence[Machine], at: float
    ) -> None:
        self.demand = demand
        self._at = at
        self.groups = groups
        self.resources = demand.resources
        self._column = {name: place for place, name in enumerate(self.resources)}
        self._size = max(64, 2 * len(machines))
        self.n = 0
        width = len(self.resources)
        self.free: Ints = np.zeros((width, self._size), np.int64)
        self.whole: Ints = np.zeros((width, len(machines)), np.int64)
        """What existing machines offer when they are empty."""
        self.tier: Ints = np.zeros(self._size, np.int64)
        self.open: Flags = np.zeros(self._size, np.bool_)
        self.group: Ints = np.full(self._size, -1, np.int64)
        self.gpus: Ints = np.zeros(self._size, np.int64)
        """GPUs that a row offers."""
        self.site: Ints = np.zeros(self._size, np.int64)
        self.locked: Flags = np.zeros(self._size, np.bool_)
        """Rows whose zone matters to the pods on them."""
        self.counts: Ints = np.zeros((len(demand.chosen), self._size), np.int64)
        self.owners: Ints = np.zeros((len(demand.terms), self._size), np.int64)
        self.names: list[str] = []
        self.zones: list[str] = []
        self.holds: list[list[int]] = []
        """Kinds that were placed on a row, in order."""
        self._ports: dict[int, list[tuple[str, str, int]]] = {}
        self._volumes: dict[tuple[str, str], Counter[int]] = {}
        """(driver, volume) → row → number of its users there."""
        self._drivers = {
            name.removeprefix(ATTACHABLE): place
            for name, place in self._column.items()
            if name.startswith(ATTACHABLE)
        }
        """CSI drivers with limits, and their columns."""
        self._journal: list[Put | Opened | Moved] = []
        self.sites: dict[str, int] = {}
        self._requests: dict[int, tuple[Ints, tuple[int, ...]]] = {}
        self._unfilled: dict[tuple[int, ...], tuple[Ints, Flags]] = {}
        """Resources that are requested together → the minimum of each over all kinds, and the `unfilled`
        rows."""
        self.offers: Ints = np.zeros((len(groups), width), np.int64)
        """What a new machine of each group offers."""
        self._promises: Ints = np.zeros((len(groups), width), np.int64)
        """The same according to the configuration, regardless of observations."""
        self.templates: list[Template] = []
        for number, view in enumerate(groups):
            self._promises[number] = [
                max(0, _least(view.group.allocatable, name) - view.template.overhead.get(name, 0))
                for name in self.resources
            ]
            self.offers[number] = [
                max(0, _least(view.template.allocatable, name) - view.template.overhead.get(name, 0))
                for name in self.resources
            ]
            for zone in view.group.zones or ("",):
                labels = {**view.template.labels, ZONE: zone} if zone else view.template.labels
                self.templates.append(Template(number, zone, labels, view.template.taints))
        self.at = {(each.group, each.zone): place for place, each in enumerate(self.templates)}
        """(group, zone) → template."""
        self.template_group: Ints = np.array([each.group for each in self.templates], np.int64)
        self.group_gpus: Ints = np.array(
            [view.template.allocatable.get(GPU, 0) for view in groups], np.int64
        ).reshape(len(groups))
        self.predicates = Predicates(self.templates, self._size)
        self._by_name = {view.group.name: number for number, view in enumerate(groups)}
        self._limit(machines)
        self._fill(machines)
        if self._drivers:
            self._fill_volumes(machines)

    # --- what is there ------------------------------------------------------------------------------------

    def _fill(self, machines: Sequence[Machine]) -> None:
        rows: list[int] = []
        vectors: list[Ints] = []
        known: dict[int, int] = {}
        which: list[int] = []
        signs: list[tuple[int, tuple[int, ...]]] = []
        signer = self.demand.signer
        for machine in machines:
            tier = _tier(machine)
            group = self._by_name.get(machine.group, -1) if machine.group is not None else -1
            site = self.groups[group].group.site if group >= 0 else machine.labels.get(SITE, "")
            row = self._row(machine.name, machine.labels, machine.taints, machine.zone, tier, group, site)
            self.open[row] = machine.present
            self.gpus[row] = machine.allocatable.get(GPU, 0)
            template = self.groups[group].template if group >= 0 else None
            daemons: dict[str, int] = dict(template.overhead) if template is not None else {}
            here: dict[str, int] = {}
            for pod in machine.daemons:
                for name, amount in pod.shape.requests:
                    here[name] = here.get(name, 0) + amount
            for column, name in enumerate(self.resources):
                used = max(daemons.get(name, 0), here.get(name, 0))
                self.whole[column, row] = _least(machine.allocatable, name) - min(used, _MOST)
            for driver, column in self._drivers.items():
                self.whole[column, row] = self._attachable(machine, driver, group)
            for pod in machine.pods:
                if self._leaves(pod):
                    continue  # The replacement pod of a restarting job does not need another machine.
                place = known.get(id(pod.shape))
                if place is None:
                    place = known[id(pod.shape)] = len(vectors)
                    vectors.append(self._vector(pod.shape))
                rows.append(row)
                which.append(place)
                if pod.shape.ports:
                    self._ports.setdefault(row, []).extend(pod.shape.ports)
                if signer is not None and self.demand.chosen:
                    signs.append((row, signer(pod.namespace, pod.labels)))
                for term in self.demand.existing.get(id(pod.shape), ()):
                    self.owners[term, row] += 1
        self.free[:, : self.n] = self.whole
        if rows:
            at = np.array(rows, np.int64)
            used_by = np.array(vectors, np.int64)[np.array(which, np.int64)]
            for column in range(len(self.resources)):
                np.subtract.at(self.free[column], at, used_by[:, column])
        for row, sign in signs:
            for number in sign:
                self.counts[number, row] += 1

    def _leaves(self, pod: Pod) -> bool:
        """Whether a pod is about to make room."""
        return pod.ends is not None and -_LATE <= pod.ends - self._at <= _SOON

    def _row(
        self,
        name: str,
        labels: Mapping[str, str],
        taints: tuple[Taint, ...],
        zone: str,
        tier: int,
        group: int,
        site: str,
    ) -> int:
        if self.n == self._size:
            self._grow()
        row = self.n
        self.n += 1
        self.tier[row] = tier
        self.open[row] = True
        self.group[row] = group
        self.locked[row] = False
        self.site[row] = self.sites.setdefault(site, len(self.sites))
        self.counts[:, row] = 0
        self.owners[:, row] = 0
        self._freed(row)
        self.names.append(name)
        self.zones.append(zone)
        self.predicates.add(name, labels, taints)
        self.holds.append([])
        return row

    def _grow(self) -> None:
        more = self._size
        self._size *= 2

        def wide(array: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.concatenate([array, np.zeros((*array.shape[:-1], more), array.dtype)], axis=-1)

        self.free, self.tier, self.group = wide(self.free), wide(self.tier), wide(self.group)
        self.gpus, self.site = wide(self.gpus), wide(self.site)
        self.counts, self.owners = wide(self.counts), wide(self.owners)
        none = np.zeros(more, np.bool_)
        self.open, self.locked = np.concatenate([self.open, none]), np.concatenate([self.locked, none])
        for asked, (least, rows) in self._unfilled.items():
            self._unfilled[asked] = least, np.concatenate([rows, none])

    # --- rows of the plan ---------------------------------------------------------------------------------

    def add(self, template: int, tier: int, name: str = "", locked: bool = False) -> int:
        """Add an empty machine of a group: one that is starting, or one that the plan opens."""
        which = self.templates[template]
        view = self.groups[which.group]
        row = self._row(name, which.labels, which.taints, which.zone, tier, which.group, view.group.site)
        self.free[:, row] = self.offers[which.group]
        self.gpus[row] = self.group_gpus[which.group]
        self.locked[row] = locked
        self._journal.append(Opened(row))
        return row

    def place(self, kind: Kind, rows: Ints, counts: Ints) -> None:
        """Place this many pods on each of these (distinct) rows."""
        request, _ = self.request(kind)
        for column in range(len(self.resources)):
            if request[column]:
                self.free[column, rows] -= request[column] * counts
        self._count(kind, rows, counts)
        for row in rows.tolist():
            self.holds[row].append(kind.index)
            if kind.shape.ports:
                self._ports.setdefault(row, []).extend(kind.shape.ports)
            self._attach(kind.attached, row)
        if kind.placed:
            self.locked[rows] = True
        self._journal.append(Put(kind, rows, counts))

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def since(self, mark: int) -> list[Put]:
        """Placements since the mark."""
        return [each for each in self._journal[mark:] if isinstance(each, Put)]

    def opened(self, mark: int) -> list[int]:
        """Rows added since the mark."""
        return [each.row for each in self._journal[mark:] if isinstance(each, Opened)]

    def last(self) -> Put | Opened | Moved:
        """The last change."""
        return self._journal[-1]

    def undo(self) -> None:
        """Roll back the last change."""
        match self._journal.pop():
            case Opened(row):
                self._drop(row)
            case Moved(row, template):
                self._change(row, template)
            case Put(kind, rows, counts):
                request, _ = self.request(kind)
                for column in range(len(self.resources)):
                    if request[column]:
                        self.free[column, rows] += request[column] * counts
                self._count(kind, rows, -counts)
                self._freed(rows)
                for row in rows.tolist():
                    self.holds[row].pop()
                    if kind.shape.ports:
                        del self._ports[row][-len(kind.shape.ports) :]
                    self._detach(kind.attached, row)

    def _drop(self, row: int) -> None:
        """Remove the last row."""
        assert row == self.n - 1
        self.n -= 1
        for column in (self.names, self.zones, self.holds):
            column.pop()
        self._ports.pop(row, None)
        self.predicates.drop()

    def move(self, row: int, template: int) -> None:
        """Change a row that the plan opened to another group, with its pods."""
        self._journal.append(Moved(row, self.at[int(self.group[row]), self.zones[row]]))
        self._change(row, template)

    def _change(self, row: int, template: int) -> None:
        which = self.templates[template]
        self.free[:, row] += self.offers[which.group] - self.offers[self.group[row]]
        self._freed(row)
        self.group[row] = which.group
        self.gpus[row] = self.group_gpus[which.group]
        self.zones[row] = which.zone
        self.predicates.change(row, which)

    def _count(self, kind: Kind, rows: Ints, counts: Ints) -> None:
        for number in kind.chosen:
            self.counts[number, rows] += counts
        for term in kind.owned:
            self.owners[term, rows] += counts

    # --- what fits ----------------------------------------------------------------------------------------

    def request(self, kind: Kind) -> tuple[Ints, tuple[int, ...]]:
        """The requests of one pod, and the columns in which they are not 0."""
        found = self._requests.get(kind.index)
        if found is None:
            vector = self._vector(kind.shape)
            found = self._requests[kind.index] = (vector, tuple(np.nonzero(vector)[0].tolist()))
        return found

    def unfilled(self, kind: Kind) -> Flags:
        """All rows except those that `skip_full` excludes: most machines of a large plan are full, and need
        not be checked again for each kind."""
        return self._unfilled_for(self.request(kind)[1])[1][: self.n]

    def skip_full(self, kind: Kind, rows: Ints) -> None:
        """Exclude, of rows without room for such a pod, those without room for any pod that requests the
        same resources, in any amounts."""
        asked = self.request(kind)[1]
        least, unfilled = self._unfilled_for(asked)
        full = np.zeros(len(rows), np.bool_)
        for column in asked:
            full |= self.free[column, rows] < least[column]
        unfilled[rows[full]] = False

    def _unfilled_for(self, asked: tuple[int, ...]) -> tuple[Ints, Flags]:
        found = self._unfilled.get(asked)
        if found is None:
            vectors = [vector for vector, of in map(self.request, self.demand.kinds) if of == asked]
            found = self._unfilled[asked] = np.min(vectors, axis=0), np.ones(self._size, np.bool_)
        return found

    def _freed(self, rows: Ints | int) -> None:
        """Rows that have more room than before."""
        for _, unfilled in self._unfilled.values():
            unfilled[rows] = True

    def capacity(self, kind: Kind, rows: Ints) -> Ints:
        """How many such pods each row has room for."""
        request, columns = self.request(kind)
        found: Ints = np.full(len(rows), _MOST, np.int64)
        for column in columns:
            np.minimum(found, self.free[column, rows] // request[column], out=found)
        if kind.shape.ports:
            np.minimum(found, 1, out=found)
            for place, row in enumerate(rows.tolist()):
                if row in self._ports and _clash(kind.shape.ports, self._ports[row]):
                    found[place] = 0
        self._share(kind, found, lambda column: self.free[column, rows], rows)
        return np.maximum(found, 0, out=found)

    def empty(self, kind: Kind) -> Ints:
        """How many such pods each existing machine would hold if it were empty."""
        request, columns = self.request(kind)
        found: Ints = np.full(self.whole.shape[1], _MOST, np.int64)
        for column in columns:
            np.minimum(found, self.whole[column] // request[column], out=found)
        self._share(kind, found, lambda column: self.whole[column])
        return np.clip(found, 0, 1 if kind.shape.ports else None)

    def per_machine(self, kind: Kind) -> Ints:
        """How many such pods an empty machine of each group holds."""
        request, columns = self.request(kind)
        found: Ints = np.full(len(self.groups), _MOST, np.int64)
        for column in columns:
            np.minimum(found, self.offers[:, column] // request[column], out=found)
        self._share(kind, found, lambda column: self.offers[:, column])
        return np.minimum(found, 1) if kind.shape.ports else found

    def promised(self, kind: Kind) -> Ints:
        """The same for the configured or observed size, whichever is larger."""
        request, columns = self.request(kind)
        found: Ints = np.full(len(self.groups), _MOST, np.int64)
        for column in columns:
            np.minimum(found, self._promises[:, column] // request[column], out=found)
        self._share(kind, found, lambda column: self._promises[:, column])
        return np.maximum(found, self.per_machine(kind))

    def fits(self, kind: Kind) -> Flags:
        """Rows that fit by labels and taints."""
        return self.predicates.rows(kind)

    def eligible(self, kind: Kind, even: Even) -> Flags:
        """The rows over which a spread is counted."""
        return self.predicates.eligible(kind, even)

    def fits_templates(self, kind: Kind) -> Flags:
        """Templates that fit."""
        return self.predicates.of_templates(kind)

    def domain(self, key: str) -> Ints:
        """For each row the number of its value of a label; -1 if it has none."""
        return self.predicates.domain(key)

    def template_domain(self, key: str) -> Ints:
        """The same for templates."""
        return self.predicates.template_domain(key)

    def values(self, key: str) -> int:
        """The number of values."""
        return self.predicates.values(key)

    def labels(self, row: int) -> Mapping[str, str]:
        """Of a row."""
        return self.predicates.labels(row)

    def _vector(self, shape: Shape) -> Ints:
        found: Ints = np.zeros(len(self.resources), np.int64)
        for name, amount in shape.requests:
            column = self._column.get(name)
            if column is not None:
                found[column] = min(max(amount, 0), 2 * _MOST)
        for driver in self.demand.attachments.own(shape):
            if driver in self._drivers:
                found[self._drivers[driver]] += 1
        return found

    # --- volumes that CSI drivers attach ------------------------------------------------------------------

    def _limit(self, machines: Sequence[Machine]) -> None:
        """The number of volumes that a new machine can attach: the minimum of existing machines of its pool;
        unlimited if there are none."""
        limits = self.demand.attachments.limits
        for driver, column in self._drivers.items():
            least: dict[str, int] = {}
            for machine in machines:
                group = self._by_name.get(machine.group or "")
                limit = limits.get(machine.node.name, {}).get(driver) if machine.node is not None else None
                if group is not None and limit is not None:
                    pool = self.groups[group].group.pool
                    least[pool] = min(limit, least.get(pool, limit))
            known = [least.get(view.group.pool, _MOST) for view in self.groups]
            self.offers[:, column] = self._promises[:, column] = known

    def _attachable(self, machine: Machine, driver: str, group: int) -> int:
        """The number of volumes that a machine can attach. The scheduler does not wait for a driver: until
        it declares a limit, there is none."""
        limits = self.demand.attachments.limits.get(machine.node.name, {}) if machine.node is not None else {}
        boots = machine.state == "booting" and group >= 0
        return limits.get(driver, int(self.offers[group, self._drivers[driver]]) if boots else _MOST)

    def _fill_volumes(self, machines: Sequence[Machine]) -> None:
        """Record volumes that are attached already: by pods' claims, and for DaemonSets (`_fill` counts
        those of other pods)."""
        attachments = self.demand.attachments
        for row, machine in enumerate(machines):
            for pod in machine.daemons:
                for driver in attachments.own(pod.shape):
                    if driver in self._drivers:
                        self.free[self._drivers[driver], row] -= 1
            for pod in (*machine.daemons, *machine.pods):
                if not self._leaves(pod):
                    self._attach(attachments.shared(pod.shape), row)

    def _attach(self, volumes: Iterable[tuple[str, str]], row: int) -> None:
        for volume in volumes:
            if (column := self._drivers.get(volume[0])) is not None:
                rows = self._volumes.setdefault(volume, Counter())
                rows[row] += 1
                self.free[column, row] -= rows[row] == 1

    def _detach(self, volumes: Iterable[tuple[str, str]], row: int) -> None:
        for volume in volumes:
            rows = self._volumes[volume]
            rows[row] -= 1
            if not rows[row]:
                del rows[row]
                self.free[self._drivers[volume[0]], row] += 1

    def _share(self, kind: Kind, found: Ints, free: Callable[[int], Ints], rows: Ints | None = None) -> None:
        """Reduce ``found`` where the volumes that such pods share take the last slots of a driver: once per
        machine, unless they are attached there already. ``rows``: these machines; None for empty ones."""
        if not kind.attached:
            return
        for driver, count in Counter(driver for driver, _ in kind.attached).items():
            column = self._drivers[driver]
            more: Ints = np.full(len(found), count, np.int64)
            if rows is not None:
                here: Ints = np.zeros(self._size, np.int64)
                for volume in kind.attached:
                    if volume[0] == driver:
                        here[[*self._volumes.get(volume, ())]] += 1
                more -= here[rows]
            left = free(column) - more
            if each := int(self.request(kind)[0][column]):
                room: Ints = left // each
            else:
                room = np.where((more == 0) | (left >= 0), _MOST, 0)
            np.clip(np.minimum(found, room, out=found), 0, None, out=found)

    def crowded(self, kind: Kind, group: int) -> Reason | None:
        """Why a new machine of a group cannot attach all volumes of such a pod; None if it can."""
        asked = Counter(driver for driver, _ in kind.attached)
        asked.update(self.demand.attachments.own(kind.shape))
        for driver, count in sorted(asked.items()):
            if count > (most := int(self.offers[group, self._drivers[driver]])):
                return Reason("volumes", what=driver, requested=count, limit=most)
        return None


def _tier(machine: Machine) -> int:
    if machine.group is None:
        return PHYSICAL
    return BOOTING if machine.state == "booting" else READY


def _least(offered: Resources, name: str) -> int:
    return max(0, min(offered.get(name, 0), _MOST))


def _clash(ports: Iterable[tuple[str, str, int]], taken: Iterable[tuple[str, str, int]]) -> bool:
    """Whether two host ports conflict; an empty address or 0.0.0.0 stands for all."""
    everywhere = ("", "0.0.0.0", "::")  # noqa: S104
    return any(
        one[0] == other[0]
        and one[2] == other[2]
        and (one[1] == other[1] or one[1] in everywhere or other[1] in everywhere)
        for one in ports
        for other in taken
    )
