"""Finds a place for everything that is pending, or the reason why there is none, and the sizes this requires.

Work is placed on on-premises machines first, then on running, starting, and new ones. If some are starting,
several plans are made: with them as they are, with work first that needs new ones, and as if none had been
requested. Each plan is repeated as if its requests were already starting, until nothing more is requested.
The plan that leaves less work waiting, and then costs less in total, is used. So a second loop requests
nothing more, no more is requested than a plan from scratch would lack, and no machine that would stay empty,
except for those that come up in other zones before one comes up in the right one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from infra.autoscaler.config import Config
from infra.autoscaler.decision import Answer, Notice, Verdict
from infra.autoscaler.limits import standing
from infra.autoscaler.memory import Backoff, Booking, Memory
from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.observed.node_affinity import HOSTNAME
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.placement import gangs, template_mismatch, verdicts
from infra.autoscaler.placement.bin_packing import Packer
from infra.autoscaler.placement.capacity import Unit
from infra.autoscaler.placement.demand import Demand, Item, Kind, gather
from infra.autoscaler.placement.expander import EVERYWHERE, Scope
from infra.autoscaler.placement.node_matrix import BOOTING, NEW, READY
from infra.autoscaler.placement.scale_up_plan import Plan, Result
from infra.autoscaler.reporting import sentences

_ROUNDS = 4
"""Maximum repetitions of a plan after machines are requested."""

_MANY = 500
"""Number of items above which a repetition costs more than it saves: a second for some thousand."""

_FAULTS = 20
"""How many items of work may fail with an error before the loop fails."""


class _BrokenError(Exception):
    """A pending item caused an error."""

    def __init__(self, item: Item, text: str) -> None:
        super().__init__(text)
        self.item = item


@dataclass(frozen=True, slots=True)
class Growth:
    """The result for pending work."""

    sizes: dict[str, int]
    """Groups that grow → their new desired capacity."""
    verdicts: tuple[Verdict, ...]
    held: frozenset[str]
    """Machines that the plan assigns to pending pods and gangs."""
    answers: tuple[Answer, ...] = ()
    bookings: dict[str, Booking] = field(default_factory=dict)
    """All reservations in force."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Gang → the deadline for its machines."""
    notices: tuple[Notice, ...] = ()
    exhausted: Mapping[str, str] = field(default_factory=dict)
    """Pools that cannot launch machines anywhere → the reason: `resource_flavors.exhausted`."""
    misfits: Mapping[str, str] = field(default_factory=dict)
    """Groups whose machines turned out not to fit some work: `template_mismatch.TemplateMismatches.found`."""


def plan(view: ClusterState, snapshot: Snapshot, memory: Memory, config: Config, now: float) -> Growth:
    """Places, sizes and verdicts for all pending work. Pure."""
    demand = gather(view, snapshot, gangs.items(view, snapshot, memory, config, now))
    if config.min_priority is not None:
        for item in demand.items:
            item.low = item.priority < config.min_priority
    broken: list[tuple[Item, str]] = []
    while True:
        try:
            return _grow(view, snapshot, demand, memory, config, now, broken)
        except _BrokenError as error:
            if len(broken) == _FAULTS:
                raise
            # An item that causes an error must not affect others: it is left out, and reported.
            broken.append((error.item, str(error)))
            demand.items = [each for each in demand.items if each is not error.item]


def _grow(
    view: ClusterState,
    snapshot: Snapshot,
    demand: Demand,
    memory: Memory,
    config: Config,
    now: float,
    broken: list[tuple[Item, str]],
) -> Growth:
    if not demand.items:  # as in most loops
        return _growth({}, (), set(), gangs.settle({}, view, snapshot, memory, config, now), broken, {})
    barred = template_mismatch.in_force(memory.misfits, now)

    def plans(there: ClusterState) -> list[Plan]:
        return _plans(there, snapshot, demand, config, barred)

    best, asked = _settled(view, plans)
    groups = tuple(view.groups.values())
    sizes = {
        groups[group].group.name: standing(groups[group]) + units
        for group, units in sorted(asked.items())
        if units > 0
    }
    standings = {each.item.key: _standing(best, each) for each in best.results if each.item.key is not None}
    kept = gangs.settle(standings, view, snapshot, memory, config, now)
    held = {
        name
        for each in best.results
        for put in each.puts
        for tier, name in map(best.what, put.rows.tolist())
        if tier <= BOOTING
    }
    return _growth(
        sizes,
        verdicts.of_plan(best, snapshot, kept.failed),
        held,
        kept,
        broken,
        best.packer.choose.misfits.found,
    )


def _growth(
    sizes: dict[str, int],
    judged: tuple[Verdict, ...],
    held: set[str],
    kept: gangs.Kept,
    broken: list[tuple[Item, str]],
    unfit: Mapping[str, str],
) -> Growth:
    booked = {name for booking in kept.bookings.values() for name in booking.machines if "#" not in name}
    return Growth(
        sizes=sizes,
        verdicts=(*judged, *(verdicts.broken(item, why) for item, why in broken)),
        held=frozenset(held | booked),
        answers=tuple(kept.answers),
        bookings=kept.bookings,
        waiting=kept.waiting,
        exhausted=kept.exhausted,
        misfits=unfit,
        notices=(
            *template_mismatch.notices(unfit),
            *(
                Notice(
                    "gang",
                    key,
                    "warning",
                    f"{key}: {sentences.reason(why)}; its unused machines are free for others",
                )
                for key, why in sorted(kept.failed.items())
            ),
            *(
                Notice(
                    "fault",
                    verdicts.name(item),
                    "error",
                    f"a fault of ours: {verdicts.name(item)}: {why}",
                )
                for item, why in broken
            ),
        ),
    )


def _settled(view: ClusterState, plans: Callable[[ClusterState], list[Plan]]) -> tuple[Plan, Counter[int]]:
    """The least to request, by group, after which a repeated plan requests nothing more; and that plan, with
    all requests starting, which the next loop reproduces if nothing else changes."""
    found: list[tuple[Plan, Counter[int]]] = []
    looked: list[dict[int, int]] = []
    for first in plans(view):
        if first.new in looked:
            continue
        looked.append(first.new)
        last, asked, rounds = first, Counter(first.new), 0
        while (
            last.new
            and (last.left or _underway(view))
            and rounds < _ROUNDS
            and not (rounds == 0 and last.at_limits)
        ):
            # Requested machines may be filled differently, and then something else is lacking.
            last = plans(_grown(view, asked))[0]
            last.known = tuple(group.coming for group in view.groups.values())
            asked.update(last.new)
            rounds += 1
        found.append((last, asked))
        if asked == first.new:
            break  # the others request more from the start
    last, asked = min(found, key=lambda each: (bool(each[0].new), each[0].worth_of(each[1])))
    if len(last.results) > _MANY:
        return last, asked
    return _without_idle(view, plans, last, asked)


def _without_idle(
    view: ClusterState, plans: Callable[[ClusterState], list[Plan]], last: Plan, asked: Counter[int]
) -> tuple[Plan, Counter[int]]:
    """The same without machines that would stay empty, if all of these can be left out."""
    for _ in range(_ROUNDS if +asked else 0):
        best = plans(_grown(view, asked))[0]
        fewer = asked - best.idle
        if best.new or fewer == +asked:
            break
        found = plans(_grown(view, fewer))[0]
        if found.new or found.worth_of({}) > last.worth_of({}):
            break
        found.known = tuple(group.coming for group in view.groups.values())
        last, asked = found, fewer
    return last, asked


def _plans(
    view: ClusterState, snapshot: Snapshot, demand: Demand, config: Config, barred: Mapping[str, Backoff]
) -> list[Plan]:
    """Alternative plans, the best first."""
    found = _plan(view, snapshot, demand, config, fresh=False, barred=barred)
    if not (_underway(view) and (found.new or found.left)):
        return [found]
    plans = [found, _plan(view, snapshot, demand, config, fresh=True, barred=barred)]
    # Starting machines were requested for specific work. Work that fits any machine must not take them from
    # work that does not, which would request another one in each loop: so work that needs new machines is
    # placed first.
    if found.wanting:
        plans.append(_plan(view, snapshot, demand, config, fresh=False, barred=barred, first=found.wanting))
    return sorted(plans, key=lambda each: each.worth_of(each.new))


def _grown(view: ClusterState, asked: Mapping[int, int]) -> ClusterState:
    """The view with the requested machines as starting."""
    groups = {
        name: replace(each, coming=each.coming + asked.get(place, 0))
        for place, (name, each) in enumerate(view.groups.items())
    }
    return replace(view, groups=groups)


def _underway(view: ClusterState) -> bool:
    return any(group.coming for group in view.groups.values()) or any(
        machine.state == "booting" and machine.group is not None for machine in view.machines
    )


def _plan(
    view: ClusterState,
    snapshot: Snapshot,
    demand: Demand,
    config: Config,
    *,
    fresh: bool,
    barred: Mapping[str, Backoff] = MappingProxyType({}),
    first: frozenset[int] = frozenset(),
) -> Plan:
    packer = Packer(view, snapshot, demand, config, fresh=fresh, misfits=barred)
    results = []
    oldest = _oldest_gangs(demand)
    for item in sorted(demand.items, key=lambda each: _order(packer, each, oldest, first)):
        mark = packer.matrix.mark()
        try:
            if item.key is not None:
                count = _gang(packer, item)
            else:
                scope = Scope(None, READY) if item.low else EVERYWHERE
                count = packer.put(item.wanted[0].kind, item.wanted[0].count, scope)
        except Exception as error:
            raise _BrokenError(item, f"{type(error).__name__}: {error}") from error
        results.append(Result(item, packer.matrix.since(mark), count))
    packer.exchange.trim()
    found = Plan(packer, results)
    _assign(found)
    return found


# --- order --------------------------------------------------------------------------------------------------


def _oldest_gangs(demand: Demand) -> dict[int, float]:
    """Priority → since when its first gang has waited."""
    found: dict[int, float] = {}
    for item in demand.items:
        if item.key is not None and not item.booked:
            found[item.priority] = min(item.created, found.get(item.priority, item.created))
    return found


def _order(
    packer: Packer, item: Item, gangs: Mapping[int, float], first: frozenset[int]
) -> tuple[object, ...]:
    """The sort key of items: higher priorities first; then work with reserved machines; pods that have
    waited longer than any gang, gangs, and other pods; among pods those whose kind is in ``first``, and
    those that are harder to place.

    The scheduler orders by priority and age: machines that were requested for pods are used by these, not by
    a later gang.
    """
    if item.key is not None:
        return -item.priority, 0 if item.booked else 2, item.created, 0, 0.0, 0.0, item.key
    kind = item.wanted[0].kind
    example = item.wanted[0].pods[0]
    return (
        -item.priority,
        1 if item.created < gangs.get(item.priority, 0.0) else 3,
        kind.index not in first,
        -kind.gpus,
        _hardness(kind),
        -packer.choose.size(kind),
        item.created,
        f"{example.namespace}/{example.name}",
    )


def _hardness(kind: Kind) -> int:
    """Kinds that need whole machines come first: others fill the machines that they open."""
    if any(near.topology == HOSTNAME and near.own for near in kind.apart):
        return 0
    if kind.shape.ports or any(even.topology == HOSTNAME for even in kind.even):
        return 1
    return 3 if kind.plain else 2


# --- gangs --------------------------------------------------------------------------------------------------


def _gang(packer: Packer, item: Item) -> int:
    """Place all of a gang (or its minimum number), or none of it."""
    if any(each.kind.lost for each in item.wanted) or item.least > item.count:
        return 0
    last = READY if item.cooling is not None or item.low else NEW
    if item.site is not None and _ever(packer, item, item.site):
        scopes = [Scope(item.site, last)]
    else:
        scopes = [Scope(site, last) for site in packer.choose.sites()]
        if item.gang is not None and item.gang.across:
            scopes.append(Scope(None, last))
    matrix = packer.matrix
    best: tuple[tuple[object, ...], Scope] | None = None
    for place, scope in enumerate(scopes):
        mark = matrix.mark()
        count = _try(packer, item, scope)
        if count < item.least:
            packer.undo(mark)
            continue
        opened = matrix.opened(mark)
        if not opened and count == item.count:
            return count
        worth = (
            item.count - count,
            bool(opened),
            scope.site is None,
            packer.choose.rank(matrix.since(mark)),
            round(sum(float(packer.capacity.price[matrix.group[row]]) for row in opened), 6),
            place,
        )
        packer.undo(mark)
        if best is None or worth < best[0]:
            best = worth, scope
    return _try(packer, item, best[1]) if best is not None else 0


def _ever(packer: Packer, item: Item, site: str) -> bool:
    """Whether a site could ever hold the rest of a gang that has bound pods there: if not, the rest is
    placed elsewhere instead of waiting forever."""
    return sum(min(packer.choose.most_at(w.kind, site), w.count) for w in item.wanted) >= item.least


def _try(packer: Packer, item: Item, scope: Scope) -> int:
    count = 0
    left = item.count
    parts = sorted(
        item.wanted, key=lambda each: (-each.kind.gpus, _hardness(each.kind), -packer.choose.size(each.kind))
    )
    for each in parts:
        found = packer.put(each.kind, each.count, scope, grow=False)
        count += found
        left -= each.count
        if count + left < item.least:
            return 0
    return count


def _standing(found: Plan, result: Result) -> gangs.Standing:
    whats = [found.what(row) for put in result.puts for row in put.rows.tolist()]
    never = None if result.count else verdicts.never(found.packer, result.item)
    return gangs.Standing(
        placed=bool(result.count),
        up=bool(result.count) and all(tier <= READY for tier, _ in whats),
        started=any(tier == NEW for tier, _ in whats),
        never=never,
        unknown=verdicts.unknown(found.packer, result.item) if never else None,
        machines=tuple(sorted({name for _, name in whats})),
    )


# --- what rows are ------------------------------------------------------------------------------------------


def _assign(found: Plan) -> None:
    """Match the machines that a plan opened with those that are starting: the rest is new."""
    packer, matrix = found.packer, found.packer.matrix
    opened: dict[int, list[int]] = {}
    for row in range(packer.base, matrix.n):
        if matrix.holds[row]:
            opened.setdefault(int(matrix.group[row]), []).append(row)
    for group, rows in opened.items():
        left = list(packer.units[group])
        wanted = Counter(matrix.zones[row] for row in rows if matrix.locked[row])
        number = packer.capacity.zones[group].needed(wanted, len(rows))
        found.new[group] = max(0, number - len(left))
        name = packer.groups[group].group.name
        fresh = 0
        for row in sorted(rows, key=lambda at: not matrix.locked[at]):
            zone = matrix.zones[row]
            unit = next((each for each in left if each.zone == zone), None)
            if unit is None and left and not matrix.locked[row]:
                unit = left[0]
            if unit is not None:
                left.remove(unit)
            else:
                unit = Unit(zone, NEW, f"{name}#{packer.groups[group].coming + fresh}")
                fresh += 1
            found.rows[row] = unit
    found.new = {group: units for group, units in found.new.items() if units > 0}
