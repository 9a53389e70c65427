"""Replaces machines that a plan opened, with everything placed on them, by larger or cheaper ones."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np

from infra.autoscaler.placement import spread
from infra.autoscaler.placement.capacity import Capacity
from infra.autoscaler.placement.demand import Kind
from infra.autoscaler.placement.expander import Expander, Offer, Scope
from infra.autoscaler.placement.node_matrix import NEW, Flags, Ints, NodeMatrix


class Rightsizer:
    """The exchanges of one plan, only among groups of one site, rank and set of zones."""

    def __init__(self, matrix: NodeMatrix, capacity: Capacity, choose: Expander, base: int) -> None:
        """``base``: the first row that the plan opens."""
        self.matrix = matrix
        self.capacity = capacity
        self.choose = choose
        self.base = base
        self.groups = capacity.groups
        self.price = capacity.price
        tiers = {(e.group.site, e.group.order, e.group.priority): 0 for e in self.groups}
        tiers = {key: place for place, key in enumerate(tiers)}
        self._like = [
            (tiers[e.group.site, e.group.order, e.group.priority], frozenset(e.group.zones))
            for e in self.groups
        ]
        """Groups among which machines of a plan may be exchanged."""
        self._peers: dict[tuple[int, frozenset[str]], Ints] = {}
        for like in dict.fromkeys(self._like):
            found = [place for place, each in enumerate(self._like) if each == like]
            found.sort(key=lambda place: (self.price[place], self.groups[place].group.name))
            self._peers[like] = np.array(found, np.int64)
        self._like_id = np.array([list(self._peers).index(each) for each in self._like], np.int64)
        self._masks: dict[frozenset[int], Flags] = {}
        self._together: dict[frozenset[bytes], Flags] = {}
        self._single: dict[tuple[int, bool], bytes] = {}

    def enlarge(self, kind: Kind, n: int, scope: Scope, offer: Offer | None, rows: Flags | None) -> int:
        """Place pods on machines that the plan opened by exchanging those for larger ones, if that is
        cheaper."""
        matrix = self.matrix
        # Volumes that its pods share count once per machine, not per pod.
        if matrix.n == self.base or kind.attached:
            return 0
        choice = self.choose.choice(kind)
        mine = np.zeros(matrix.n, np.bool_)
        mine[self.base :] = matrix.tier[self.base : matrix.n] == NEW
        if rows is not None:
            mine[: len(rows)] &= rows[: matrix.n]
        if scope.site is not None:
            mine &= matrix.site[: matrix.n] == matrix.sites.get(scope.site, -1)
        if not mine.any():
            return 0
        within = choice.rank <= (offer.rank if offer is not None else len(self.groups))
        candidates = choice.groups[within]
        found: list[tuple[int, int]] = []
        for like in np.unique(self._like_id[candidates]).tolist():
            peers = candidates[self._like_id[candidates] == like]
            at = np.nonzero(mine)[0]
            at = at[self._like_id[matrix.group[at]] == like]
            target = self._largest(kind, peers) if len(at) else None
            if target is None:
                continue
            room = self._room(kind, at, target, n)
            # The largest first, to exchange as few as possible.
            for place in np.argsort(-room, kind="stable").tolist():
                count = min(int(room[place]), n - sum(count for _, count in found))
                if count <= 0:
                    break
                found.append((int(at[place]), count))
        return self._exchange(kind, found, offer, n) if found else 0

    def _largest(self, kind: Kind, peers: Ints) -> int | None:
        """The group that holds most pods of a kind and can still get a machine; None without one."""
        if len(peers) < 2:
            return None
        holds = self.matrix.per_machine(kind)[peers]
        largest = peers[np.argsort(-holds, kind="stable")[:3]].tolist()
        return next((group for group in largest if self.capacity.room(group) > 0), None)

    def _room(self, kind: Kind, rows: Ints, target: int, n: int) -> Ints:
        """How many more pods each of these machines would hold as one of the target group, at most ``n``."""
        matrix = self.matrix
        request, columns = matrix.request(kind)
        room = np.full(len(rows), n, np.int64)
        for column in columns:
            more = matrix.offers[target, column] - matrix.offers[matrix.group[rows], column]
            np.minimum(room, (matrix.free[column, rows] + more) // request[column], out=room)
        if kind.plain or not (room > 0).any():
            return room
        some = np.nonzero(room > 0)[0]
        at, left = rows[some], room[some]
        if kind.shape.ports:
            left = np.minimum(left, matrix.capacity(kind, at))
        room = np.zeros_like(room)
        room[some] = spread.caps(matrix, kind, at, left, n, partial(matrix.eligible, kind), None)
        return room

    def _exchange(self, kind: Kind, found: list[tuple[int, int]], offer: Offer | None, n: int) -> int:
        matrix = self.matrix
        request, _ = matrix.request(kind)
        cost = 0.0
        moves: list[tuple[int, int, int]] = []
        wanted: Counter[int] = Counter()
        for row, count in found:
            used = matrix.offers[matrix.group[row]] - matrix.free[:, row] + request * count
            template = self._cheapest(row, used, kind, wanted)
            if template is None:
                continue
            group = matrix.templates[template].group
            wanted[group] += 1
            cost += self.price[group] - self.price[matrix.group[row]]
            moves.append((row, count, template))
        total = sum(count for _, count, _ in moves)
        if not total:
            return 0
        if offer is not None:
            # A machine for the remaining pods has to be opened anyway.
            rest = -(-(n - total) // offer.each) * float(self.price[offer.group])
            if cost + rest > offer.cost + 1e-9:
                return 0
        for row, _, template in moves:
            self._move(row, template)
        self.matrix.place(
            kind,
            np.array([row for row, _, _ in moves], np.int64),
            np.array([count for _, count, _ in moves], np.int64),
        )
        return total

    def _cheapest(self, row: int, used: Ints, kind: Kind | None, wanted: Counter[int]) -> int | None:
        """The template of the cheapest group that holds this much and everything on a row."""
        matrix = self.matrix
        own = int(matrix.group[row])
        peers = self._peers[self._like[own]]
        enough = (matrix.offers[peers] >= used).all(axis=1)
        kinds = frozenset(matrix.holds[row]) if kind is None else frozenset((*matrix.holds[row], kind.index))
        allowed = self._allowed(kinds)
        locked = bool(matrix.locked[row])
        single = self.capacity.zones[own].single
        for group in peers[enough].tolist():
            template = self.matrix.at[group, matrix.zones[row]]
            if not allowed[template]:
                continue
            if group == own:
                return template
            if (locked or (kind is not None and kind.placed)) and not self._same_places(row, template):
                continue
            if not single and (self._zoned(own) or self._zoned(group)):
                continue
            if self.capacity.room(group) > wanted[group]:
                return template
        return None

    def _allowed(self, kinds: frozenset[int]) -> Flags:
        """Templates on which these kinds may be together. Without kinds that use GPUs, none that has them."""
        found = self._masks.get(kinds)
        if found is None:
            gpus = any(self.matrix.demand.kinds[index].gpus for index in kinds)
            masks = frozenset(self._mask(index, gpus) for index in kinds)
            found = self._together.get(masks)
            if found is None:
                found = np.ones(len(self.matrix.templates), np.bool_)
                for mask in masks:
                    found &= np.frombuffer(mask, np.bool_)
                self._together[masks] = found
            self._masks[kinds] = found
        return found

    def _mask(self, index: int, gpus: bool) -> bytes:
        """The mask of one kind, as a hashable value."""
        found = self._single.get((index, gpus))
        if found is None:
            kind = self.matrix.demand.kinds[index]
            mask = self.matrix.fits_templates(kind)
            if not gpus:
                groups = np.zeros(len(self.groups), np.bool_)
                groups[self.choose.choice(kind).groups] = True
                mask = mask & groups[self.matrix.template_group]
            found = self._single[index, gpus] = mask.tobytes()
        return found

    def _zoned(self, group: int) -> bool:
        """Whether the zone of a machine that the plan opened in a group matters."""
        mine = self.matrix.group[self.base : self.matrix.n] == group
        return bool((mine & self.matrix.locked[self.base : self.matrix.n]).any())

    def _same_places(self, row: int, template: int) -> bool:
        return all(
            self.matrix.domain(key)[row] == self.matrix.template_domain(key)[template]
            for key in self.matrix.predicates.domains()
        )

    def _move(self, row: int, template: int) -> None:
        own, group = int(self.matrix.group[row]), self.matrix.templates[template].group
        if own == group:
            return
        self.capacity.back(own, self.matrix.zones[row])
        self.matrix.move(row, template)
        self.capacity.join(group, self.matrix.zones[row])

    def trim(self) -> None:
        """Exchange each machine that the plan opens for the cheapest that holds its pods."""
        matrix = self.matrix
        for row in range(self.base, matrix.n):
            if not matrix.holds[row] or matrix.tier[row] != NEW:
                continue
            own = int(matrix.group[row])
            used = matrix.offers[own] - matrix.free[:, row]
            template = self._cheapest(row, used, None, Counter())
            if template is None:
                continue
            group = matrix.templates[template].group
            if self.price[group] < self.price[own] - 1e-9:
                self._move(row, template)
