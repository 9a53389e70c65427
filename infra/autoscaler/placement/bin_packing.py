"""Finds places for pods: first on existing machines, then on new ones that it opens.

A plan may count booting and requested machines (``fresh=False``), or ignore them (``fresh=True``): then what
it opens is offset by them in the end. The latter makes a second loop reach the same result as the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infra.autoscaler.config import Config
from infra.autoscaler.memory import Backoff
from infra.autoscaler.node_properties import Resources
from infra.autoscaler.observed.cluster_state import ClusterState, GroupView
from infra.autoscaler.observed.node_affinity import HOSTNAME
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.placement import spread
from infra.autoscaler.placement.capacity import Capacity, Unit
from infra.autoscaler.placement.demand import Demand, Kind
from infra.autoscaler.placement.expander import EVERYWHERE, Expander, Offer, Scope, preference
from infra.autoscaler.placement.node_matrix import (
    BOOTING,
    COMING,
    NEW,
    READY,
    Flags,
    Ints,
    Moved,
    NodeMatrix,
    Opened,
)
from infra.autoscaler.placement.rightsizing import Rightsizer
from infra.autoscaler.placement.template_mismatch import TemplateMismatches
from infra.autoscaler.placement.zones import Zones

Floats: TypeAlias = NDArray[np.float64]

_TRIES = 16
"""How often machines are redistributed between zones, if one of them gets fewer than planned."""


class Packer:
    """A plan in progress."""

    def __init__(
        self,
        view: ClusterState,
        snapshot: Snapshot,
        demand: Demand,
        config: Config,
        *,
        fresh: bool,
        misfits: Mapping[str, Backoff] = MappingProxyType({}),
    ) -> None:
        self.groups: Sequence[GroupView] = tuple(view.groups.values())
        self.fresh = fresh
        number = {each.group.name: place for place, each in enumerate(self.groups)}
        self.units: list[list[Unit]] = [[] for _ in self.groups]
        """Units that are starting, by group; empty for a plan that is not fresh."""
        machines = list(view.machines)
        self.offered: Sequence[Resources] = (
            *(each.group.allocatable for each in self.groups),
            *(each.template.allocatable for each in self.groups),
            *(each.allocatable for each in machines),
        )
        """The offers of all existing and possible machines, also of those without pods."""
        if not config.owned:
            machines = [each for each in machines if each.group is not None]
        there: list[list[tuple[str, int]]] = [[] for _ in self.groups]
        kept = []
        for machine in machines:
            group = number.get(machine.group or "", -1)
            underway = fresh and group >= 0 and machine.state == "booting"
            if underway:
                self.units[group] += [Unit(machine.zone, BOOTING, machine.name)] * machine.units
            else:
                kept.append(machine)
                if group >= 0 and machine.state not in ("gone", "leaving"):
                    there[group].append((machine.zone, machine.units))
        self.matrix = NodeMatrix(demand, self.groups, kept, view.at)
        zones: list[Zones] = []
        for place, view_of in enumerate(self.groups):
            booting = [(unit.zone, 1) for unit in self.units[place]]
            coming = _first(view_of, [*there[place], *booting])
            for count, zone in enumerate(coming):
                name = f"{view_of.group.name}#{count}"
                if fresh:
                    self.units[place].append(Unit(zone, COMING, name))
                else:
                    self.matrix.add(self.matrix.at[place, zone], COMING, name)
                    there[place].append((zone, 1))
            zones.append(Zones(view_of, there[place], [unit.zone for unit in self.units[place]]))
        self.base = self.matrix.n
        self.capacity = Capacity(view, config, zones, self.units)
        self.choose = Expander(
            self.matrix,
            self.capacity,
            snapshot,
            view,
            self.base,
            TemplateMismatches(self.matrix, self.groups, kept, misfits),
        )
        self.exchange = Rightsizer(self.matrix, self.capacity, self.choose, self.base)
        self._wanted = self._sought(demand)
        self._turns = self._in_turn()

    def _sought(self, demand: Demand) -> Floats:
        """For each starting row: the share that all kinds that could use it would take, spread evenly.

        It was launched for some of them. Kinds with alternatives leave it to kinds with fewer, for which
        another machine would otherwise be launched in each loop.
        """
        matrix, base = self.matrix, self.base
        found = np.zeros(base, np.float64)
        comes = matrix.tier[:base] >= BOOTING
        if not comes.any():
            return found
        sorts: dict[tuple[object, ...], tuple[Kind, float]] = {}
        for item in demand.items:
            for each in item.wanted:
                kind, shape = each.kind, each.kind.shape
                if kind.lost:
                    continue
                sign = (shape.selector, shape.affinity, shape.tolerations, kind.volumes, kind.gpus)
                known = sorts.get(sign, (kind, 0.0))
                sorts[sign] = known[0], known[1] + each.count * (kind.gpus or self.choose.size(kind))
        gpus = np.maximum(matrix.gpus[:base], 1)
        for kind, amount in sorts.values():
            rows = matrix.fits(kind)[:base] & comes & (matrix.gpus[:base] >= kind.gpus)
            if count := int(rows.sum()):
                found[rows] += amount / count / (gpus[rows] if kind.gpus else 1)
        return found.round(6)

    def _in_turn(self) -> Ints:
        """Existing and starting rows, in the order in which equal ones are filled. Starting ones are ordered
        by group and zone, regardless of whether they have an instance and of its name: so the next loop,
        which knows more instances, fills them in the same order."""
        matrix, base = self.matrix, self.base
        comes = matrix.tier[:base] >= BOOTING
        if not comes.any():
            return np.arange(base)
        zones = np.unique(np.array(matrix.zones[:base]), return_inverse=True)[1]
        return np.lexsort((zones * comes, matrix.group[:base] * comes, comes))

    # --- one kind -----------------------------------------------------------------------------------------

    def put(self, kind: Kind, n: int, scope: Scope = EVERYWHERE, *, grow: bool = True) -> int:
        """Place up to ``n`` pods of a kind. Returns how many were placed."""
        if kind.lost or n <= 0:
            return 0
        matrix = self.matrix
        allowed = matrix.fits(kind) & matrix.open[: matrix.n] & (matrix.tier[: matrix.n] <= scope.tier)
        if scope.site is not None:
            allowed &= matrix.site[: matrix.n] == matrix.sites.get(scope.site, -1)
        if kind.plain:
            left = n - self._fill(kind, n, allowed)
            if left and scope.tier == NEW:
                left -= self._acquire(kind, left, scope, None, None, None, grow)
            return n - left
        now = matrix.tier[: matrix.n] <= READY
        left = n - self._settle(kind, n, allowed & now, lambda even: matrix.eligible(kind, even) & now, None)
        if not left:
            return n
        if scope.tier > READY:
            extra = self.choose.openable(kind, scope) if scope.tier == NEW else None
            left -= self._settle(kind, left, allowed, self._universe(kind), extra)
        if left and scope.tier == NEW:
            left -= self._spread_out(kind, left, scope, grow)
            if left:
                allowed = np.append(allowed, np.zeros(matrix.n - len(allowed), np.bool_))
                allowed[self.base :] |= matrix.fits(kind)[self.base :]
                if scope.site is not None:
                    allowed &= matrix.site[: matrix.n] == matrix.sites.get(scope.site, -1)
                left -= self._settle(kind, left, allowed, self._universe(kind), None)
        return n - left

    def _fill(self, kind: Kind, n: int, allowed: Flags) -> int:
        """Place pods without rules about each other: as many as there is room for."""
        rows, room = self._roomy(kind, allowed)
        if not len(rows):
            return 0
        counts = spread.first(room, n)
        taken = counts > 0
        self.matrix.place(kind, rows[taken], counts[taken])
        return int(counts.sum())

    def _roomy(self, kind: Kind, allowed: Flags) -> tuple[Ints, Ints]:
        """Rows with room, in the order in which they are filled, and the capacity of each."""
        matrix = self.matrix
        allowed = allowed & matrix.unfilled(kind)[: len(allowed)]
        rows = np.append(self._turns[allowed[self._turns]], self.base + np.nonzero(allowed[self.base :])[0])
        room = matrix.capacity(kind, rows)
        some = room > 0
        if not some.all():
            matrix.skip_full(kind, rows[~some])
            rows, room = rows[some], room[some]
        if len(rows) > 1:
            tier = matrix.tier[rows]
            tier[tier == COMING] = BOOTING
            wanted = np.zeros(len(rows), np.float64)
            wanted[rows < self.base] = self._wanted[rows[rows < self.base]]
            if kind.gpus:
                # The fewest remaining GPUs first: whole machines are kept for work that needs them.
                order = np.lexsort((room, wanted, self._liking(kind, rows), tier))
            elif kind.shape.preferred or matrix.gpus[rows].any():
                order = np.lexsort((wanted, matrix.gpus[rows] > 0, self._liking(kind, rows), tier))
            else:
                order = np.lexsort((wanted, tier))
            rows, room = rows[order], room[order]
        return rows, room

    def _liking(self, kind: Kind, rows: Ints) -> Ints:
        """Lower is better: by the pod's preferred terms."""
        if not kind.shape.preferred:
            return np.zeros(len(rows), np.int64)
        return np.array(
            [-preference(kind, self.matrix.labels(row), self.matrix.names[row]) for row in rows.tolist()],
            np.int64,
        )

    def _universe(self, kind: Kind) -> spread.Universe:
        return partial(self.matrix.eligible, kind)

    def _settle(
        self, kind: Kind, n: int, allowed: Flags, universe: spread.Universe, extra: Flags | None
    ) -> int:
        """Place pods with rules about each other. ``extra``: templates that could be opened."""
        matrix = self.matrix
        placed = 0
        limits = spread.counting(kind)

        def places(key: str) -> Ints:
            return matrix.template_domain(key)[extra] if extra is not None else np.zeros(0, np.int64)

        while placed < n:
            rows, room = self._roomy(kind, allowed)
            if not len(rows):
                break
            left = n - placed
            room = spread.caps(matrix, kind, rows, room, left, universe, places)
            if not limits:
                counts = spread.first(room, left)
            else:
                single = len(limits) > 1
                ones = 1 if single else left
                for limit in limits:
                    domain = matrix.domain(limit.topology)[rows]
                    if limit.even is not None:
                        room[domain < 0] = 0
                    known = domain >= 0
                    capacity = np.bincount(
                        domain[known],
                        weights=np.minimum(room[known], left),
                        minlength=matrix.values(limit.topology),
                    ).astype(np.int64)
                    share = spread.shares(matrix, limit, capacity, left, universe, places(limit.topology))
                    if single:
                        share = np.where(share > 0, 1, 0)
                        room = np.where(np.append(share, 1)[domain] > 0, room, 0)
                    else:
                        order = np.arange(len(rows))
                        counts = spread.row_share(order, domain, room, share)
                        outside = spread.first(np.where(known, 0, room), left - int(counts.sum()))
                        counts = counts + outside
                if single:
                    counts = spread.first(room, ones)
            taken = counts > 0
            if not taken.any():
                break
            matrix.place(kind, rows[taken], counts[taken])
            placed += int(counts.sum())
        return placed

    # --- machines to be opened ----------------------------------------------------------------------------

    def _acquire(
        self,
        kind: Kind,
        n: int,
        scope: Scope,
        templates: Flags | None,
        rows: Flags | None,
        cap: int | None,
        grow: bool,
    ) -> int:
        """Open machines for pods, or enlarge those opened before, whichever is cheaper."""
        placed = 0
        while placed < n:
            offer = self.choose.best(kind, n - placed, scope, templates, cap)
            if grow:
                got = self.exchange.enlarge(kind, n - placed, scope, offer, rows)
                if got:
                    placed += got
                    continue
            if offer is None:
                break
            got = self._launch(kind, n - placed, offer, templates)
            if not got:
                break
            placed += got
        return placed

    def _open(self, group: int, *, locked: bool = False) -> int:
        """Add a row."""
        zone = self.capacity.take(group)
        return self.matrix.add(self.matrix.at[group, zone], NEW, "", locked)

    def _launch(self, kind: Kind, n: int, offer: Offer, templates: Flags | None) -> int:
        group = offer.group
        room = self.capacity.room(group)
        wanted = self.choose.zones(kind, group, templates)
        anywhere = self.capacity.zones[group].possible() <= wanted
        placed = 0
        if anywhere:
            machines = min(-(-n // offer.each), room)
            rows = np.array([self._open(group) for _ in range(machines)], np.int64)
            counts = np.full(machines, offer.each, np.int64)
            if any(even.topology == HOSTNAME for even in kind.even):
                amount = min(n, machines * offer.each)
                counts = np.full(machines, amount // machines, np.int64)
                counts[: amount % machines] += 1
            else:
                counts = spread.first(counts, n)
            some = counts > 0
            self.matrix.place(kind, rows[some], counts[some])
            return int(counts.sum())
        # What does not fill a machine may be cheaper elsewhere.
        while placed < n and (not placed or n - placed >= offer.each):
            steps = self.choose.fillers(kind, group, templates)
            if steps >= room:
                break
            for _ in range(int(steps)):
                self._open(group)
            row = self._open(group, locked=True)
            room = self.capacity.room(group)
            count = min(offer.each, n - placed)
            self.matrix.place(kind, np.array([row]), np.array([count]))
            placed += count
        return placed

    def _spread_out(self, kind: Kind, n: int, scope: Scope, grow: bool) -> int:
        """Open machines for pods with rules about each other: anti-affinity, affinity, topology spread."""
        matrix = self.matrix
        cap = self._cap(kind, n)
        if cap <= 0:
            return 0
        names = spread.keys(kind, matrix)
        if not names:
            if not any(each.topology == HOSTNAME for each in kind.together):
                return self._acquire(kind, n, scope, None, None, cap, grow)
            offer = self.choose.best(kind, n, scope, None, cap)
            return self._launch(kind, min(n, offer.each), offer, None) if offer else 0
        limits = spread.counting(kind)
        placed = 0
        while placed < n:
            allowed = self._apart(kind, scope, names)
            if not self._together(kind, n - placed, scope, allowed, cap):
                break
            opened = self._open_within(kind, n - placed, scope, limits, names, allowed, cap, grow)
            if not opened:
                break
            placed += opened
            if limits:
                # The opened machine may have room for more pods, which the next one then need not hold.
                fits = matrix.fits(kind).copy()
                fits[: self.base] = False
                if scope.site is not None:
                    fits = fits & (matrix.site[: matrix.n] == matrix.sites.get(scope.site, -1))
                placed += self._settle(
                    kind, n - placed, fits, self._universe(kind), self.choose.openable(kind, scope)
                )
        return placed

    def _apart(self, kind: Kind, scope: Scope, names: Sequence[str]) -> Flags:
        """Templates whose topology domains have no pod that repels this kind, and do not exceed the skew."""
        matrix = self.matrix
        openable = self.choose.openable(kind, scope)
        allowed = openable.copy()
        for key in names:
            domain = matrix.template_domain(key)
            allowed &= ~np.append(spread.blocked(matrix, kind, key), False)[domain]
            for even in kind.even:
                if even.topology != key:
                    continue
                allowed &= domain >= 0
                if not even.own:
                    closed = spread.uneven(matrix, even, self._universe(kind), domain[openable])
                    allowed &= ~np.append(closed, True)[domain]
        return allowed

    def _together(self, kind: Kind, n: int, scope: Scope, allowed: Flags, cap: int) -> bool:
        """Limit templates to the domains of the pods that this kind must be near. False if none is left.

        The first pod of a kind with affinity to itself selects the domain: that of the best offer.
        """
        matrix = self.matrix
        for near in kind.together:
            if near.topology == HOSTNAME:
                continue
            domain = matrix.template_domain(near.topology)
            inside = spread.by_domain(matrix, near.topology, matrix.counts[near.chosen])
            if inside.any():
                allowed &= np.append(inside > 0, False)[domain]
                continue
            offer = self.choose.best(kind, n, scope, allowed, cap) if near.own else None
            if offer is None:
                return False
            mine = allowed & (matrix.template_group == offer.group) & (domain >= 0)
            if not mine.any():
                return False
            ahead = (matrix.at[offer.group, zone] for zone in self.capacity.zones[offer.group].ahead())
            place = next(template for template in ahead if mine[template])
            allowed &= domain == domain[place]
        return bool(allowed.any())

    def _open_within(
        self,
        kind: Kind,
        n: int,
        scope: Scope,
        limits: Sequence[spread.Counting],
        names: Sequence[str],
        allowed: Flags,
        cap: int,
        grow: bool,
    ) -> int:
        """Open machines of allowed templates, as many per domain as the limits allow."""
        matrix = self.matrix
        if not limits:
            return self._acquire(kind, n, scope, allowed, self._inside(names, allowed), cap, grow)
        if len(limits) == 1:
            (limit,) = limits
            domain = matrix.template_domain(limit.topology)
            room = self._room(limit, allowed, n)
            placed = self._share_out(kind, scope, limit, room, n, allowed, cap, grow)
            nowhere = allowed & (domain < 0)
            if limit.even is None and placed < n and nowhere.any():
                placed += self._acquire(kind, n - placed, scope, nowhere, None, cap, False)
            return placed
        # Domains of several limits overlap, so one pod at a time.
        openable = self.choose.openable(kind, scope)
        for limit in limits:
            domain = matrix.template_domain(limit.topology)
            room = self._room(limit, allowed, 1)
            share = spread.shares(matrix, limit, room, n, self._universe(kind), domain[openable])
            allowed &= np.append(share > 0, limit.even is None)[domain]
        if not allowed.any():
            return 0
        return self._acquire(kind, 1, scope, allowed, self._inside(names, allowed), cap, grow)

    def _room(self, limit: spread.Counting, allowed: Flags, n: int) -> Ints:
        """By domain of a limit's topology: ``n`` if a template there is allowed, else 0."""
        domain = self.matrix.template_domain(limit.topology)[allowed]
        room = np.zeros(self.matrix.values(limit.topology), np.int64)
        room[domain[domain >= 0]] = n
        return room

    def _share_out(
        self,
        kind: Kind,
        scope: Scope,
        limit: spread.Counting,
        capacity: Ints,
        n: int,
        allowed: Flags,
        cap: int,
        grow: bool,
    ) -> int:
        """Open machines in several domains in turn. If one provides less than its share, all are
        recomputed."""
        matrix = self.matrix
        domain = matrix.template_domain(limit.topology)
        openable = domain[self.choose.openable(kind, scope)]
        levels = spread.by_domain(matrix, limit.topology, matrix.counts[limit.chosen])
        for _ in range(_TRIES):
            share = spread.shares(matrix, limit, capacity, n, self._universe(kind), openable)
            mark = matrix.mark()
            placed = 0
            for place in sorted(np.nonzero(share)[0].tolist(), key=lambda at: (levels[at], at)):
                wanted = int(share[place])
                rows = matrix.domain(limit.topology) == place
                got = self._acquire(kind, wanted, scope, allowed & (domain == place), rows, cap, grow)
                placed += got
                if got < wanted:
                    capacity[place] = got
                    break
            else:
                return placed
            self.undo(mark)
        return 0

    def _inside(self, names: Sequence[str], allowed: Flags) -> Flags:
        """Rows in the domains of these templates."""
        found = np.ones(self.matrix.n, np.bool_)
        for key in names:
            places = np.append(np.zeros(self.matrix.values(key), np.bool_), False)
            places[self.matrix.template_domain(key)[allowed]] = True
            found &= places[self.matrix.domain(key)]
        return found

    def _cap(self, kind: Kind, n: int) -> int:
        """The maximum number of such pods on a new, empty machine, for limits per machine."""
        matrix = self.matrix
        cap = n
        for near in kind.apart:
            if near.topology == HOSTNAME and near.own:
                cap = min(cap, 1)
        for even in kind.even:
            if even.topology == HOSTNAME and even.own:
                here = matrix.counts[even.chosen][: matrix.n][matrix.eligible(kind, even)]
                if len(here):
                    least = int(here.min()) if len(here) >= even.least else 0
                    cap = min(cap, even.skew + least)
        for near in kind.together:
            if near.topology == HOSTNAME and (not near.own or matrix.counts[near.chosen, : matrix.n].any()):
                return 0
        return cap

    # --- undoing ------------------------------------------------------------------------------------------

    def undo(self, mark: int) -> None:
        """Roll back to a mark of the matrix."""
        matrix = self.matrix
        while matrix.mark() > mark:
            match matrix.last():
                case Opened(row):
                    self.capacity.back(int(matrix.group[row]), matrix.zones[row])
                case Moved(row, template):
                    self.capacity.back(int(matrix.group[row]), matrix.zones[row])
                    self.capacity.join(matrix.templates[template].group, matrix.zones[row])
                case _:
                    pass
            matrix.undo()


def _first(view: GroupView, there: list[tuple[str, int]]) -> list[str]:
    """The zones of the units that are starting."""
    if not view.coming:
        return []
    ahead = Zones(view, there).ahead()
    return [next(ahead) for _ in range(view.coming)]
