"""Which groups fit which pods, and in which order they are tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.observed.node_affinity import holds_term
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.placement import spread
from infra.autoscaler.placement.capacity import Capacity
from infra.autoscaler.placement.demand import Kind
from infra.autoscaler.placement.node_matrix import NEW, Flags, Ints, NodeMatrix, Put
from infra.autoscaler.placement.template_mismatch import TemplateMismatches
from infra.catalogue.labels import SITE


@dataclass(frozen=True, slots=True)
class Scope:
    """Where work may be placed."""

    site: str | None = None
    tier: int = NEW
    """The highest allowed kind of row; `NEW`: machines may be opened."""


EVERYWHERE = Scope()


@dataclass(frozen=True, slots=True)
class Choice:
    """Groups that fit a kind, in order of preference."""

    groups: Ints
    rank: Ints
    """Equal if only cost decides."""
    holds: Ints
    """Pods per machine."""
    templates: Flags


@dataclass(frozen=True, slots=True)
class Offer:
    """The best group for some pods."""

    group: int
    rank: int
    each: int
    """Pods per machine."""
    cost: float


class Expander:
    """The choices of one plan."""

    def __init__(
        self,
        matrix: NodeMatrix,
        capacity: Capacity,
        snapshot: Snapshot,
        view: ClusterState,
        base: int,
        misfits: TemplateMismatches,
    ) -> None:
        """``base``: the first row that the plan opens."""
        self.misfits = misfits
        self.matrix = matrix
        self.capacity = capacity
        self.snapshot = snapshot
        self.view = view
        self.base = base
        self.groups = capacity.groups
        self.price = capacity.price
        self._site = np.array([each.group.site for each in self.groups], np.str_)
        self._allowed = np.array([each.group.max > 0 for each in self.groups], np.bool_)
        self._choices: dict[int, Choice] = {}
        self._orders: dict[tuple[object, ...], tuple[Ints, Ints]] = {}
        most = (
            self.matrix.offers.max(axis=0)
            if len(self.groups)
            else np.zeros(len(self.matrix.resources), np.int64)
        )
        if self.matrix.n:
            most = np.maximum(most, self.matrix.free[:, : self.matrix.n].max(axis=1))
        self._most = np.maximum(most, 1)

    def choice(self, kind: Kind) -> Choice:
        """Groups whose machines fit such a pod, whether or not there is room."""
        found = self._choices.get(kind.index)
        if found is None:
            found = self._choices[kind.index] = self._chosen(kind)
        return found

    def _chosen(self, kind: Kind) -> Choice:
        matrix = self.matrix
        templates = matrix.fits_templates(kind)
        holds = matrix.per_machine(kind)
        fit = np.zeros(len(self.groups), np.bool_)
        fit[matrix.template_group[templates]] = True
        fit &= holds > 0
        fit &= ~self.misfits.of(kind, templates)
        gpus = matrix.group_gpus > 0
        if not kind.gpus and (fit & ~gpus & self._allowed).any():
            fit &= ~gpus
        groups, rank = self._order(kind, templates)
        mine = fit[groups]
        groups, rank = groups[mine], rank[mine]
        return Choice(groups, rank, holds[groups], templates)

    def _order(self, kind: Kind, templates: Flags) -> tuple[Ints, Ints]:
        """All groups in order of preference, and their ranks: among equal ranks the cost decides."""
        home = self.snapshot.namespaces.get(kind.shape.namespace, {}).get(SITE, "")
        key = (home, kind.shape.preferred, id(templates) if kind.shape.preferred else 0)
        found = self._orders.get(key)
        if found is None:
            liking = [0] * len(self.groups)
            if kind.shape.preferred:
                for place in np.nonzero(templates)[0].tolist():
                    each = self.matrix.templates[place]
                    liking[each.group] = max(liking[each.group], preference(kind, each.labels, ""))
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

    def best(
        self, kind: Kind, n: int, scope: Scope, templates: Flags | None, cap: int | None
    ) -> Offer | None:
        """The group from which to start machines: by rank, then the cost of the batch, then the fewest
        unused GPUs."""
        choice = self.choice(kind)
        allowed = self.capacity.open()[choice.groups]
        if not allowed.any():
            return None
        if templates is not None:
            some = np.zeros(len(self.groups), np.bool_)
            some[self.matrix.template_group[templates]] = True
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
            first = np.zeros(len(groups))
            extra = np.zeros(len(groups))
            for at in np.nonzero(self.capacity.several[groups])[0].tolist():
                group = int(groups[at])
                first[at] = extra[at] = self.fillers(kind, group, templates)
                # Pods that are spread over zones also use machines that start in other zones.
                if machines[at] > 1 and not spread.counting(kind):
                    extra[at] = self.fillers(kind, group, templates, int(machines[at]))
            cost = (machines + extra) * self.price[groups]
            idle = machines * self.matrix.group_gpus[groups] - n * kind.gpus
            while True:
                least = cost.min()
                if least == inf:
                    break
                equal = np.nonzero(cost <= least + 1e-6)[0]
                for worth in (machines, idle):
                    equal = equal[worth[equal] == worth[equal].min()]
                at = int(equal[0])
                group = int(groups[at])
                if self.capacity.room(group) > first[at]:
                    return Offer(group, int(rank), int(holds[at]), float(cost[at]))
                cost[at] = inf
            start = end
        return None

    def zones(self, kind: Kind, group: int, templates: Flags | None) -> frozenset[str]:
        """Zones in which a machine of a group fits."""
        allowed = self.choice(kind).templates
        if templates is not None:
            allowed = allowed & templates
        return frozenset(
            zone for zone in (self.groups[group].group.zones or ("",)) if allowed[self.matrix.at[group, zone]]
        )

    def fillers(self, kind: Kind, group: int, templates: Flags | None, machines: int = 1) -> float:
        """How many machines would start in other zones before this many in the right ones: `Zones.others`."""
        zones = self.capacity.zones[group]
        return 0 if zones.single else zones.others(self.zones(kind, group, templates), machines)

    def openable(self, kind: Kind, scope: Scope) -> Flags:
        """Templates of which a machine could be opened for it now."""
        some = np.zeros(len(self.groups), np.bool_)
        some[self.choice(kind).groups] = True
        some &= self.capacity.open()
        if scope.site is not None:
            some &= self._site == scope.site
        found = self.choice(kind).templates & some[self.matrix.template_group]
        for place in np.nonzero(found & self.capacity.several[self.matrix.template_group])[0].tolist():
            each = self.matrix.templates[place]
            if each.zone not in self.capacity.zones[each.group].possible():
                found[place] = False
        return found

    def size(self, kind: Kind) -> float:
        """The share of the largest machine that a pod needs."""
        request, _ = self.matrix.request(kind)
        return float((request / self._most).max()) if len(request) else 0.0

    def largest(self, kind: Kind) -> int:
        """How many such pods the largest existing machine would hold if it were empty."""
        return int(self._spare(kind).max(initial=0))

    def most(self, kind: Kind, across: bool) -> int:
        """How many such pods one site (or all together) could ever hold."""
        found = self._most_by_site(kind)
        return found.total() if across else max(found.values(), default=0)

    def most_at(self, kind: Kind, site: str) -> int:
        """How many such pods a site could ever hold."""
        return self._most_by_site(kind)[site]

    def _most_by_site(self, kind: Kind) -> Counter[str]:
        found: Counter[str] = Counter()
        choice = self.choice(kind)
        for group, holds in zip(choice.groups.tolist(), choice.holds.tolist(), strict=True):
            of = self.groups[group].group
            found[of.site] += of.max * holds
        spare = self._spare(kind)
        sites = self.matrix.site[: len(spare)]
        for site, number in self.matrix.sites.items():
            found[site] += int(spare[sites == number].sum())
        return found

    def _spare(self, kind: Kind) -> Ints:
        """For each existing machine that no group launches for such a pod: how many it would hold if it were
        empty."""
        found = self.matrix.empty(kind)
        mine = np.append(np.isin(np.arange(len(self.groups)), self.choice(kind).groups), False)
        found[mine[self.matrix.group[: len(found)]] | ~self.matrix.fits(kind)[: len(found)]] = 0
        return found

    def sites(self) -> list[str]:
        """Sites with machines or groups: physical ones first, then in the order of the groups."""
        of_groups = dict.fromkeys(
            each.group.site for each in sorted(self.groups, key=lambda each: each.group.order)
        )
        own = [site for site in self.matrix.sites if site not in of_groups]
        return [*own, *of_groups]

    def rank(self, puts: Sequence[Put]) -> int:
        """The worst rank of the groups whose machines were opened."""
        found = 0
        for put in puts:
            choice = self.choice(put.kind)
            for group in {int(self.matrix.group[row]) for row in put.rows.tolist() if row >= self.base}:
                place = np.nonzero(choice.groups == group)[0]
                if len(place):
                    found = max(found, int(choice.rank[place[0]]))
        return found


def preference(kind: Kind, labels: Mapping[str, str], name: str) -> int:
    """The sum of the weights of the pod's preferred terms that match."""
    return sum(weight for weight, term in kind.shape.preferred if holds_term(term, labels, name))
