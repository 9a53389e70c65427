"""Finds places: on machines that are there first, then on ones that are opened for it.

A plan may count what boots and comes as machines (``fresh=False``), or be made as if it had not been asked
for yet (``fresh=True``): then what it opens is set against what comes in the end. The second makes a second
loop come to what the first one came to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from infra.autoscaler import topology
from infra.autoscaler.board import BOOTING, COMING, NEW, READY, Board, Flags, Ints, Moved, Opened, Put
from infra.autoscaler.config import Config
from infra.autoscaler.demand import Demand, Kind
from infra.autoscaler.fitting import HOSTNAME, holds_term
from infra.autoscaler.stock import Stock, Unit
from infra.autoscaler.view import GroupView, View
from infra.autoscaler.world import Snapshot
from infra.autoscaler.zones import Zones
from infra.catalogue.labels import SITE

_TRIES = 16
"""How often machines are shared out anew between zones, when one of them gives less than it should."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where work may go."""

    site: str | None = None
    tier: int = NEW
    """The last kind of row that is allowed; `NEW`: machines may be opened."""


EVERYWHERE = Scope()


@dataclass(frozen=True, slots=True)
class _Choice:
    """Groups that may take a kind, the ones to be preferred first."""

    groups: Ints
    rank: Ints
    """Equal where only cost decides."""
    holds: Ints
    """Pods a machine."""
    templates: Flags


@dataclass(frozen=True, slots=True)
class Offer:
    """The best group for some pods now."""

    group: int
    rank: int
    each: int
    """Pods a machine."""
    cost: float


class Packer:
    """One plan being made."""

    def __init__(
        self, view: View, snapshot: Snapshot, demand: Demand, config: Config, *, fresh: bool
    ) -> None:
        self.view = view
        self.snapshot = snapshot
        self.groups: Sequence[GroupView] = tuple(view.groups.values())
        self.fresh = fresh
        number = {each.group.name: place for place, each in enumerate(self.groups)}
        self.units: list[list[Unit]] = [[] for _ in self.groups]
        """What is on its way, by group; of a plan that is not fresh, nothing."""
        machines = list(view.machines)
        if not config.owned:
            machines = [each for each in machines if each.group is not None]
        there: list[list[tuple[str, int]]] = [[] for _ in self.groups]
        kept = []
        for machine in machines:
            group = number.get(machine.group or "", -1)
            coming = fresh and group >= 0 and machine.state == "booting"
            if coming:
                self.units[group] += [Unit(machine.zone, BOOTING, machine.name)] * machine.units
            else:
                kept.append(machine)
                if group >= 0 and machine.state not in ("gone", "leaving"):
                    there[group].append((machine.zone, machine.units))
        self.board = Board(demand, self.groups, kept)
        zones: list[Zones] = []
        for place, view_of in enumerate(self.groups):
            booting = [(unit.zone, 1) for unit in self.units[place]]
            coming = _first(view_of, [*there[place], *booting])
            for count, zone in enumerate(coming):
                name = f"{view_of.group.name}#{count}"
                if fresh:
                    self.units[place].append(Unit(zone, COMING, name))
                else:
                    self.board.add(self.board.at[place, zone], COMING, name)
                    there[place].append((zone, 1))
            zones.append(Zones(view_of, there[place], [unit.zone for unit in self.units[place]]))
        self.base = self.board.n
        self.stock = Stock(view, config, zones, self.units)
        self.price = self.stock.price
        self._site = np.array([each.group.site for each in self.groups], np.str_)
        tiers = {(e.group.site, e.group.order, e.group.priority): 0 for e in self.groups}
        tiers = {key: place for place, key in enumerate(tiers)}
        self._like = [
            (tiers[e.group.site, e.group.order, e.group.priority], frozenset(e.group.zones))
            for e in self.groups
        ]
        """Groups among which a machine may be exchanged for another, later in the same plan."""
        self._peers: dict[tuple[int, frozenset[str]], Ints] = {}
        for like in dict.fromkeys(self._like):
            found = [place for place, each in enumerate(self._like) if each == like]
            found.sort(key=lambda place: (self.price[place], self.groups[place].group.name))
            self._peers[like] = np.array(found, np.int64)
        self._like_id = np.array([list(self._peers).index(each) for each in self._like], np.int64)
        self._choices: dict[int, _Choice] = {}
        self._orders: dict[tuple[object, ...], tuple[Ints, Ints]] = {}
        self._masks: dict[frozenset[int], Flags] = {}

        most = (
            self.board.offers.max(axis=0) if len(self.groups) else np.zeros(len(demand.resources), np.int64)
        )
        if self.board.n:
            most = np.maximum(most, self.board.free[:, : self.board.n].max(axis=1))
        self._most = np.maximum(most, 1)

    def size(self, kind: Kind) -> float:
        """How much of the largest machine a pod takes."""
        request, _ = self.board.request(kind)
        return float((request / self._most).max()) if len(request) else 0.0

    def largest(self, kind: Kind) -> int:
        """How many such pods the roomiest machine would have room for, were it empty."""
        return max((count for _, count in self._empty(kind)), default=0)

    def most(self, kind: Kind, across: bool) -> int:
        """How many such pods one site (or all together) would ever have room for."""
        found: Counter[str] = Counter()
        choice = self.choice(kind)
        for group, holds in zip(choice.groups.tolist(), choice.holds.tolist(), strict=True):
            of = self.groups[group].group
            found[of.site] += of.max * holds
        for site, count in self._empty(kind):
            found[site] += count
        return found.total() if across else max(found.values(), default=0)

    def _empty(self, kind: Kind) -> list[tuple[str, int]]:
        """Machines that would take such a pod, and that no group starts for it: site, and how many each."""
        board = self.board
        fits = board.fits(kind)
        mine = {self.groups[group].group.name for group in self.choice(kind).groups.tolist()}
        by_name = {name: row for row, name in enumerate(board.names[: self.base])}
        found = []
        for machine in self.view.machines:
            row = by_name.get(machine.name)
            if row is None or not fits[row] or machine.state == "gone" or machine.group in mine:
                continue
            asked = [(name, amount) for name, amount in kind.shape.requests if amount > 0]
            holds = min((machine.allocatable.get(name, 0) // amount for name, amount in asked), default=0)
            if kind.shape.ports:
                holds = min(holds, 1)
            site = next(site for site, number in board.sites.items() if number == board.site[row])
            found.append((site, holds))
        return found

    def sites(self) -> list[str]:
        """Where there are machines or groups: our own first, then in the order of the groups."""
        of_groups = dict.fromkeys(
            each.group.site for each in sorted(self.groups, key=lambda each: each.group.order)
        )
        own = [site for site in self.board.sites if site not in of_groups]
        return [*own, *of_groups]

    def rank(self, puts: Sequence[Put]) -> int:
        """The worst rank of the groups whose machines were opened."""
        found = 0
        for put in puts:
            choice = self.choice(put.kind)
            for group in {int(self.board.group[row]) for row in put.rows.tolist() if row >= self.base}:
                place = np.nonzero(choice.groups == group)[0]
                if len(place):
                    found = max(found, int(choice.rank[place[0]]))
        return found

    # --- one kind -----------------------------------------------------------------------------------------

    def put(self, kind: Kind, n: int, scope: Scope = EVERYWHERE, *, grow: bool = True) -> int:
        """Find places for up to ``n`` such pods. How many there were."""
        if kind.lost or n <= 0:
            return 0
        board = self.board
        allowed = board.fits(kind) & board.open[: board.n] & (board.tier[: board.n] <= scope.tier)
        if scope.site is not None:
            allowed &= board.site[: board.n] == board.sites.get(scope.site, -1)
        if kind.plain:
            left = n - self._fill(kind, n, allowed)
            if left and scope.tier == NEW:
                left -= self._acquire(kind, left, scope, None, None, None, grow)
            return n - left
        eligible = board.eligible(kind)
        now = board.tier[: board.n] <= READY
        left = n - self._settle(kind, n, allowed & now, eligible & now, None)
        if not left:
            return n
        if scope.tier > READY:
            extra = self._openable(kind, scope) if scope.tier == NEW else None
            left -= self._settle(kind, left, allowed, eligible, extra)
        if left and scope.tier == NEW:
            left -= self._spread_out(kind, left, scope, grow)
            if left:
                allowed = np.append(allowed, np.zeros(board.n - len(allowed), np.bool_))
                allowed[self.base :] |= board.fits(kind)[self.base :]
                if scope.site is not None:
                    allowed &= board.site[: board.n] == board.sites.get(scope.site, -1)
                left -= self._settle(kind, left, allowed, board.eligible(kind), None)
        return n - left

    def _fill(self, kind: Kind, n: int, allowed: Flags) -> int:
        """Pods that do not mind each other: as many as there is room for."""
        rows, room = self._roomy(kind, allowed)
        if not len(rows):
            return 0
        counts = topology.first(room, n)
        taken = counts > 0
        self.board.place(kind, rows[taken], counts[taken])
        return int(counts.sum())

    def _roomy(self, kind: Kind, allowed: Flags) -> tuple[Ints, Ints]:
        """Rows with room, in the order in which they are to be filled, and how many each may have."""
        board = self.board
        rows = np.nonzero(allowed)[0]
        room = board.capacity(kind, rows)
        some = room > 0
        rows, room = rows[some], room[some]
        if len(rows) > 1:
            tier = board.tier[rows]
            if kind.gpus:
                # The fewest cards left: whole machines are kept for those that need them.
                order = np.lexsort((room, self._liking(kind, rows), tier))
            elif kind.shape.preferred or board.cards[rows].any():
                order = np.lexsort((board.cards[rows] > 0, self._liking(kind, rows), tier))
            else:
                order = np.argsort(tier, kind="stable")
            rows, room = rows[order], room[order]
        return rows, room

    def _liking(self, kind: Kind, rows: Ints) -> Ints:
        """Less is better: by the terms that the pod prefers."""
        if not kind.shape.preferred:
            return np.zeros(len(rows), np.int64)
        return np.array(
            [-_preference(kind, self.board.labels(row), self.board.names[row]) for row in rows.tolist()],
            np.int64,
        )

    def _settle(self, kind: Kind, n: int, allowed: Flags, universe: Flags, extra: Flags | None) -> int:
        """The same for pods that mind each other. ``extra``: templates that could be opened."""
        board = self.board
        placed = 0
        limits = topology.counting(kind)

        def places(key: str) -> Ints:
            return board.template_domain(key)[extra] if extra is not None else np.zeros(0, np.int64)

        while placed < n:
            rows, room = self._roomy(kind, allowed)
            if not len(rows):
                break
            left = n - placed
            room = topology.caps(board, kind, rows, room, left, universe, places)
            if not limits:
                counts = topology.first(room, left)
            else:
                single = len(limits) > 1
                ones = 1 if single else left
                for limit in limits:
                    domain = board.domain(limit.topology)[rows]
                    if limit.even is not None:
                        room[domain < 0] = 0
                    known = domain >= 0
                    capacity = np.bincount(
                        domain[known],
                        weights=np.minimum(room[known], left),
                        minlength=board.values(limit.topology),
                    ).astype(np.int64)
                    share = topology.shares(board, limit, capacity, left, universe, places(limit.topology))
                    if single:
                        share = np.where(share > 0, 1, 0)
                        room = np.where(np.append(share, 1)[domain] > 0, room, 0)
                    else:
                        order = np.arange(len(rows))
                        counts = topology.row_share(order, domain, room, share)
                        outside = topology.first(np.where(known, 0, room), left - int(counts.sum()))
                        counts = counts + outside
                if single:
                    counts = topology.first(room, ones)
            taken = counts > 0
            if not taken.any():
                break
            board.place(kind, rows[taken], counts[taken])
            placed += int(counts.sum())
        return placed

    # --- machines to be opened ----------------------------------------------------------------------------

    def choice(self, kind: Kind) -> _Choice:
        """Groups whose machines such a pod may be on, whether there is room or not."""
        found = self._choices.get(kind.index)
        if found is None:
            found = self._choices[kind.index] = self._chosen(kind)
        return found

    def _chosen(self, kind: Kind) -> _Choice:
        board = self.board
        templates = board.fits_templates(kind)
        holds = board.per_machine(kind)
        fit = np.zeros(len(self.groups), np.bool_)
        fit[board.template_group[templates]] = True
        fit &= holds > 0
        cards = board.group_cards > 0
        most = np.array([each.group.max > 0 for each in self.groups], np.bool_)
        if not kind.gpus and (fit & ~cards & most).any():
            fit &= ~cards
        groups, rank = self._order(kind, templates)
        mine = fit[groups]
        groups, rank = groups[mine], rank[mine]
        return _Choice(groups, rank, holds[groups], templates)

    def _order(self, kind: Kind, templates: Flags) -> tuple[Ints, Ints]:
        """All groups in the order in which such pods go for them, and ranks: of equals the cost decides."""
        home = self.snapshot.namespaces.get(kind.shape.namespace, {}).get(SITE, "")
        key = (home, kind.shape.preferred, id(templates) if kind.shape.preferred else 0)
        found = self._orders.get(key)
        if found is None:
            liking = [0] * len(self.groups)
            if kind.shape.preferred:
                for place in np.nonzero(templates)[0].tolist():
                    each = self.board.templates[place]
                    liking[each.group] = max(liking[each.group], _preference(kind, each.labels, ""))
            keyed = sorted(
                ((-liking[place], each.group.site != home, each.group.order, -each.group.priority), place)
                for place, each in enumerate(self.groups)
            )
            ranks = {key: place for place, key in enumerate(dict.fromkeys(key for key, _ in keyed))}
            found = self._orders[key] = (
                np.array([place for _, place in keyed], np.int64),
                np.array([ranks[key] for key, _ in keyed], np.int64),
            )
        return found

    def _best(
        self, kind: Kind, n: int, scope: Scope, templates: Flags | None, cap: int | None
    ) -> Offer | None:
        """The group to start machines of: by rank, what the batch costs, and the fewest cards unused."""
        choice = self.choice(kind)
        if not len(choice.groups):
            return None
        allowed = np.ones(len(choice.groups), np.bool_)
        if templates is not None:
            some = np.zeros(len(self.groups), np.bool_)
            some[self.board.template_group[templates]] = True
            allowed &= some[choice.groups]
        if scope.site is not None:
            allowed &= self._site[choice.groups] == scope.site
        places = np.nonzero(allowed)[0]
        start = 0
        while start < len(places):
            rank = choice.rank[places[start]]
            end = start + int(np.searchsorted(choice.rank[places[start:]], rank, side="right"))
            same = places[start:end]
            groups = choice.groups[same]
            holds = choice.holds[same] if cap is None else np.minimum(choice.holds[same], cap)
            machines = -(-n // holds)
            extra = np.zeros(len(groups))
            for at in np.nonzero(self.stock.several[groups])[0].tolist():
                extra[at] = self._fillers(kind, int(groups[at]), templates)
            cost = (machines + extra) * self.price[groups]
            idle = machines * self.board.group_cards[groups] - n * kind.gpus
            while True:
                least = cost.min()
                if least == inf:
                    break
                equal = np.nonzero(cost <= least + 1e-6)[0]
                for worth in (machines, idle):
                    equal = equal[worth[equal] == worth[equal].min()]
                at = int(equal[0])
                group = int(groups[at])
                if self.stock.room(group) > extra[at]:
                    return Offer(group, int(rank), int(holds[at]), float(cost[at]))
                cost[at] = inf
            start = end
        return None

    def _zones(self, kind: Kind, group: int, templates: Flags | None) -> frozenset[str]:
        """Zones in which a machine of a group would do."""
        allowed = self.choice(kind).templates
        if templates is not None:
            allowed = allowed & templates
        return frozenset(
            zone for zone in (self.groups[group].group.zones or ("",)) if allowed[self.board.at[group, zone]]
        )

    def _fillers(self, kind: Kind, group: int, templates: Flags | None) -> float:
        """How many machines would come up in other zones before one in the right place does."""
        zones = self.stock.zones[group]
        if zones.single:
            return 0
        wanted = self._zones(kind, group, templates)
        if zones.possible() <= wanted:
            return 0
        if not wanted & zones.possible():
            return inf
        for number, zone in enumerate(zones.ahead()):
            if zone in wanted:
                return number
            if number > 2 * len(zones.zones) + 64:
                break
        return inf

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
        """Open machines for pods, or make larger what was opened before, whichever costs less."""
        placed = 0
        while placed < n:
            offer = self._best(kind, n - placed, scope, templates, cap)
            if grow:
                got = self._enlarge(kind, n - placed, scope, offer, rows)
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
        """A new row."""
        zone = self.stock.take(group)
        return self.board.add(self.board.at[group, zone], NEW, "", locked)

    def _launch(self, kind: Kind, n: int, offer: Offer, templates: Flags | None) -> int:
        group = offer.group
        room = self.stock.room(group)
        wanted = self._zones(kind, group, templates)
        anywhere = self.stock.zones[group].possible() <= wanted
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
                counts = topology.first(counts, n)
            some = counts > 0
            self.board.place(kind, rows[some], counts[some])
            return int(counts.sum())
        while placed < n:
            steps = self._fillers(kind, group, templates)
            if steps >= room:
                break
            for _ in range(int(steps)):
                self._open(group)
            row = self._open(group, locked=True)
            room = self.stock.room(group)
            count = min(offer.each, n - placed)
            self.board.place(kind, np.array([row]), np.array([count]))
            placed += count
        return placed

    def _openable(self, kind: Kind, scope: Scope) -> Flags:
        """Templates of which a machine could be opened for it now."""
        some = np.zeros(len(self.groups), np.bool_)
        some[self.choice(kind).groups] = True
        some &= self.stock.open()
        if scope.site is not None:
            some &= self._site == scope.site
        found = self.choice(kind).templates & some[self.board.template_group]
        for place in np.nonzero(found & self.stock.several[self.board.template_group])[0].tolist():
            each = self.board.templates[place]
            if each.zone not in self.stock.zones[each.group].possible():
                found[place] = False
        return found

    def _spread_out(self, kind: Kind, n: int, scope: Scope, grow: bool) -> int:
        """Open machines for pods that mind each other."""
        board = self.board
        cap = self._cap(kind, n)
        if cap <= 0:
            return 0
        alone = any(each.topology == HOSTNAME for each in kind.together)
        names = topology.keys(kind, board)
        if not names:
            if not alone:
                return self._acquire(kind, n, scope, None, None, cap, grow)
            offer = self._best(kind, n, scope, None, cap)
            return self._launch(kind, min(n, offer.each), offer, None) if offer else 0
        limits = topology.counting(kind)
        placed = 0
        while placed < n:
            openable = self._openable(kind, scope)
            eligible = board.eligible(kind)
            left = n - placed
            allowed = openable.copy()
            for key in names:
                domain = board.template_domain(key)
                shut = np.append(topology.blocked(board, kind, key), False)
                allowed &= ~shut[domain]
                for even in kind.even:
                    if even.topology == key:
                        allowed &= domain >= 0
                        if not even.own:
                            closed = topology.uneven(board, even, eligible, domain[openable])
                            allowed &= ~np.append(closed, True)[domain]
            for near in kind.together:
                if near.topology == HOSTNAME:
                    continue
                domain = board.template_domain(near.topology)
                inside = topology.by_domain(board, near.topology, board.counts[near.chosen])
                if inside.any():
                    allowed &= np.append(inside > 0, False)[domain]
                    continue
                offer = self._best(kind, left, scope, allowed, cap) if near.own else None
                if offer is None:
                    return placed
                mine = allowed & (board.template_group == offer.group) & (domain >= 0)
                for zone in self.stock.zones[offer.group].ahead():
                    place = self.board.at[offer.group, zone]
                    if mine[place] or not mine.any():
                        break
                if not mine.any():
                    return placed
                allowed &= domain == domain[place]
            if not allowed.any():
                break
            before = placed
            if not limits:
                placed += self._acquire(kind, left, scope, allowed, self._inside(names, allowed), cap, grow)
            elif len(limits) == 1:
                key = limits[0].topology
                domain = board.template_domain(key)
                capacity = np.zeros(board.values(key), np.int64)
                mine = domain[allowed]
                capacity[mine[mine >= 0]] = left
                placed += self._share_out(kind, scope, limits[0], capacity, left, allowed, cap, grow)
                if limits[0].even is None and placed < n:
                    nowhere = allowed & (domain < 0)
                    if nowhere.any():
                        placed += self._acquire(kind, n - placed, scope, nowhere, None, cap, False)
            else:
                for limit in limits:
                    domain = board.template_domain(limit.topology)
                    capacity = np.zeros(board.values(limit.topology), np.int64)
                    mine = domain[allowed]
                    capacity[mine[mine >= 0]] = 1
                    share = topology.shares(board, limit, capacity, left, eligible, domain[openable])
                    allowed &= np.append(share > 0, limit.even is None)[domain]
                if allowed.any():
                    placed += self._acquire(kind, 1, scope, allowed, self._inside(names, allowed), cap, grow)
            if placed == before:
                break
            if limits:
                # What was opened has room for more, which the next machine need not have.
                fits = board.fits(kind)
                fits[: self.base] = False
                if scope.site is not None:
                    fits = fits & (board.site[: board.n] == board.sites.get(scope.site, -1))
                placed += self._settle(
                    kind, n - placed, fits, board.eligible(kind), self._openable(kind, scope)
                )
        return placed

    def _share_out(
        self,
        kind: Kind,
        scope: Scope,
        limit: topology.Counting,
        capacity: Ints,
        n: int,
        allowed: Flags,
        cap: int,
        grow: bool,
    ) -> int:
        """Open machines in several places at a time. Where one gives less than its share, all get others."""
        board = self.board
        domain = board.template_domain(limit.topology)
        openable = domain[self._openable(kind, scope)]
        levels = topology.by_domain(board, limit.topology, board.counts[limit.chosen])
        for _ in range(_TRIES):
            share = topology.shares(board, limit, capacity, n, board.eligible(kind), openable)
            mark = board.mark()
            placed = 0
            for place in sorted(np.nonzero(share)[0].tolist(), key=lambda at: (levels[at], at)):
                wanted = int(share[place])
                rows = board.domain(limit.topology) == place
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
        """Rows in places where these templates are."""
        found = np.ones(self.board.n, np.bool_)
        for key in names:
            places = np.append(np.zeros(self.board.values(key), np.bool_), False)
            places[self.board.template_domain(key)[allowed]] = True
            found &= places[self.board.domain(key)]
        return found

    def _cap(self, kind: Kind, n: int) -> int:
        """How many such pods a new, empty machine may have, for the limits that go by machine."""
        board = self.board
        cap = n
        for near in kind.apart:
            if near.topology == HOSTNAME and near.own:
                cap = min(cap, 1)
        for even in kind.even:
            if even.topology == HOSTNAME and even.own:
                here = board.counts[even.chosen][: board.n][board.eligible(kind)]
                if len(here):
                    least = int(here.min()) if len(here) >= even.least else 0
                    cap = min(cap, even.skew + least)
        for near in kind.together:
            if near.topology == HOSTNAME and (not near.own or board.counts[near.chosen, : board.n].any()):
                return 0
        return cap

    # --- machines that were opened, exchanged for others --------------------------------------------------

    def _enlarge(self, kind: Kind, n: int, scope: Scope, offer: Offer | None, rows: Flags | None) -> int:
        """Put pods on machines that the plan opened, and exchange those for larger ones, if it is cheaper."""
        board = self.board
        if board.n == self.base:
            return 0
        choice = self.choice(kind)
        mine = np.zeros(board.n, np.bool_)
        mine[self.base :] = board.tier[self.base : board.n] == NEW
        if rows is not None:
            mine[: len(rows)] &= rows[: board.n]
        if scope.site is not None:
            mine &= board.site[: board.n] == board.sites.get(scope.site, -1)
        if not mine.any():
            return 0
        within = choice.rank <= (offer.rank if offer is not None else len(self.groups))
        candidates = choice.groups[within]
        request, columns = board.request(kind)
        found: list[tuple[int, int]] = []
        for like in np.unique(self._like_id[candidates]).tolist():
            peers = candidates[self._like_id[candidates] == like]
            if len(peers) < 2:
                continue
            at = np.nonzero(mine)[0]
            at = at[self._like_id[board.group[at]] == like]
            if not len(at):
                continue
            holds = board.per_machine(kind)[peers]
            for place in np.argsort(-holds, kind="stable")[:3].tolist():
                target = int(peers[place])
                if self.stock.room(target) > 0:
                    break
            else:
                continue
            room = np.full(len(at), n, np.int64)
            for column in columns:
                more = board.offers[target, column] - board.offers[board.group[at], column]
                np.minimum(room, (board.free[column, at] + more) // request[column], out=room)
            some = room > 0
            at, room = at[some], room[some]
            if not len(at):
                continue
            if not kind.plain:
                if kind.shape.ports:
                    room = np.minimum(room, board.capacity(kind, at))
                room = topology.caps(board, kind, at, room, n, board.eligible(kind), None)
            # The roomiest first: as few as possible are exchanged.
            for place in np.argsort(-room, kind="stable").tolist():
                if room[place] <= 0 or sum(count for _, count in found) >= n:
                    break
                count = min(int(room[place]), n - sum(count for _, count in found))
                found.append((int(at[place]), count))
        if not found:
            return 0
        return self._exchange(kind, found, offer, n)

    def _exchange(self, kind: Kind, found: list[tuple[int, int]], offer: Offer | None, n: int) -> int:
        board = self.board
        request, _ = board.request(kind)
        cost = 0.0
        moves: list[tuple[int, int, int]] = []
        wanted: Counter[int] = Counter()
        for row, count in found:
            used = board.offers[board.group[row]] - board.free[:, row] + request * count
            template = self._cheapest(row, used, kind, wanted)
            if template is None:
                continue
            group = board.templates[template].group
            wanted[group] += 1
            cost += self.price[group] - self.price[board.group[row]]
            moves.append((row, count, template))
        total = sum(count for _, count, _ in moves)
        if not total:
            return 0
        if offer is not None:
            # What is left over has to be opened for all the same.
            rest = -(-(n - total) // offer.each) * float(self.price[offer.group])
            if cost + rest > offer.cost + 1e-9:
                return 0
        for row, _, template in moves:
            self._move(row, template)
        self.board.place(
            kind,
            np.array([row for row, _, _ in moves], np.int64),
            np.array([count for _, count, _ in moves], np.int64),
        )
        return total

    def _cheapest(self, row: int, used: Ints, kind: Kind | None, wanted: Counter[int]) -> int | None:
        """The template of the cheapest group that holds so much and everything that is on a row."""
        board = self.board
        own = int(board.group[row])
        peers = self._peers[self._like[own]]
        enough = (board.offers[peers] >= used).all(axis=1)
        kinds = frozenset(board.holds[row]) if kind is None else frozenset((*board.holds[row], kind.index))
        allowed = self._allowed(kinds)
        locked = bool(board.locked[row])
        single = self.stock.zones[own].single
        for group in peers[enough].tolist():
            template = self.board.at[group, board.zones[row]]
            if not allowed[template]:
                continue
            if group == own:
                return template
            if (locked or (kind is not None and kind.placed)) and not self._same_places(row, template):
                continue
            if not single and (self._zoned(own) or self._zoned(group)):
                continue
            if self.stock.room(group) > wanted[group]:
                return template
        return None

    def _allowed(self, kinds: frozenset[int]) -> Flags:
        found = self._masks.get(kinds)
        if found is None:
            found = np.ones(len(self.board.templates), np.bool_)
            for index in sorted(kinds):
                found &= self.board.fits_templates(self.board.demand.kinds[index])
            self._masks[kinds] = found
        return found

    def _zoned(self, group: int) -> bool:
        """Whether the zone of a machine that the plan opened in a group matters."""
        mine = self.board.group[self.base : self.board.n] == group
        return bool((mine & self.board.locked[self.base : self.board.n]).any())

    def _same_places(self, row: int, template: int) -> bool:
        return all(
            self.board.domain(key)[row] == self.board.template_domain(key)[template]
            for key in self.board.labels_asked()
        )

    def _move(self, row: int, template: int) -> None:
        own, group = int(self.board.group[row]), self.board.templates[template].group
        if own == group:
            return
        self.stock.back(own, self.board.zones[row])
        self.board.move(row, template)
        self.stock.join(group, self.board.zones[row])

    def trim(self) -> None:
        """Exchange each machine that the plan opens for the cheapest that holds what is on it."""
        board = self.board
        for row in range(self.base, board.n):
            if not board.holds[row] or board.tier[row] != NEW:
                continue
            own = int(board.group[row])
            used = board.offers[own] - board.free[:, row]
            template = self._cheapest(row, used, None, Counter())
            if template is None:
                continue
            group = board.templates[template].group
            if self.price[group] < self.price[own] - 1e-9:
                self._move(row, template)

    # --- undoing ------------------------------------------------------------------------------------------

    def undo(self, mark: int) -> None:
        """Back to a mark of the board."""
        board = self.board
        while board.mark() > mark:
            match board.last():
                case Opened(row):
                    self.stock.back(int(board.group[row]), board.zones[row])
                case Moved(row, template):
                    self.stock.back(int(board.group[row]), board.zones[row])
                    self.stock.join(board.templates[template].group, board.zones[row])
                case _:
                    pass
            board.undo()


def _first(view: GroupView, there: list[tuple[str, int]]) -> list[str]:
    """The zones of the units that are coming."""
    if not view.coming:
        return []
    ahead = Zones(view, there).ahead()
    return [next(ahead) for _ in range(view.coming)]


def _preference(kind: Kind, labels: object, name: str) -> int:
    """The weights of the terms that a pod would like to hold, and which do."""
    return sum(
        weight
        for weight, term in kind.shape.preferred
        if holds_term(term, labels, name)  # type: ignore[arg-type]
    )
