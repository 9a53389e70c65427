"""A place for everything that waits, or the reason why there is none; and the sizes which that takes.

Work goes to our own machines first, then to those that are there, on their way, and new. A plan is made twice
where machines are on their way: with them as they are, and as if nothing had been asked for yet. The one that
leaves less waiting, and then costs less, is taken: so a second loop asks for nothing more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from infra.autoscaler import gangs, misfits, words
from infra.autoscaler.board import BOOTING, COMING, NEW, READY, Put
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Answer, Notice, Verdict
from infra.autoscaler.demand import Demand, Item, Kind, gather
from infra.autoscaler.fitting import HOSTNAME
from infra.autoscaler.limits import standing
from infra.autoscaler.memory import Backoff, Booking, Memory
from infra.autoscaler.offers import EVERYWHERE, Scope
from infra.autoscaler.packing import Packer
from infra.autoscaler.stock import Unit
from infra.autoscaler.view import View
from infra.autoscaler.world import Snapshot

_LAPS = 3
"""How often a plan is looked at again, once machines are asked for."""


_FAULTS = 20
"""How much work may fail us before the loop does."""


class _BrokenError(Exception):
    """Something that waits made us fail."""

    def __init__(self, item: Item, text: str) -> None:
        super().__init__(text)
        self.item = item


@dataclass(frozen=True, slots=True)
class Growth:
    """What waiting work comes to."""

    sizes: dict[str, int]
    """Groups that are to grow → their desired capacity in all."""
    verdicts: tuple[Verdict, ...]
    held: frozenset[str]
    """Machines that the plan gives to pods that wait, and to gangs."""
    answers: tuple[Answer, ...] = ()
    bookings: dict[str, Booking] = field(default_factory=dict)
    """All that are in force."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Gang → by when all of it is to be up."""
    notices: tuple[Notice, ...] = ()
    exhausted: Mapping[str, str] = field(default_factory=dict)
    """Pools of which no machine can be had anywhere → why: `flavours.exhausted`."""
    misfits: Mapping[str, str] = field(default_factory=dict)
    """Groups whose machines turn out not to take some work: `misfits.Misfits.found`."""


@dataclass(slots=True)
class Result:
    """Where an item's pods went."""

    item: Item
    puts: list[Put]
    count: int


@dataclass(slots=True)
class Plan:
    """One whole plan."""

    packer: Packer
    results: list[Result]
    rows: dict[int, Unit] = field(default_factory=dict)
    """Rows that the plan opened → what they are: a machine on its way, or a new one."""
    new: dict[int, int] = field(default_factory=dict)
    """Group → units that have to be asked for."""
    known: tuple[int, ...] | None = None
    """By group, how many units come in any case, where the plan took some of its own for that."""

    def what(self, row: int) -> tuple[int, str]:
        """What a row is (its tier) and its machine's name."""
        unit = self.rows.get(row)
        board = self.packer.board
        tier, name = (unit.tier, unit.name) if unit is not None else (int(board.tier[row]), board.names[row])
        if tier == COMING and self.known is not None:
            number = int(name.rpartition("#")[2])
            return (tier if number < self.known[int(board.group[row])] else NEW), name
        return tier, name

    @property
    def left(self) -> bool:
        """Whether some of it has no place."""
        return any(each.count < each.item.count for each in self.results)

    @property
    def wanting(self) -> frozenset[int]:
        """Kinds of single pods that stand on machines to be started, or nowhere."""
        found = set()
        for each in self.results:
            if each.item.key is None:
                kind = each.item.wanted[0].kind.index
                if each.count < each.item.count or any(
                    (put.rows >= self.packer.base).any() for put in each.puts
                ):
                    found.add(kind)
        return frozenset(found)

    @property
    def worth(self) -> tuple[tuple[int, ...], float, int]:
        """Less is better."""
        left: Counter[int] = Counter()
        for each in self.results:
            left[each.item.priority] += each.item.count - each.count
        cost = sum(float(self.packer.stock.price[group]) * units for group, units in self.new.items())
        return (
            tuple(left[priority] for priority in sorted(left, reverse=True)),
            round(cost, 6),
            sum(self.new.values()),
        )


def plan(view: View, snapshot: Snapshot, memory: Memory, config: Config, now: float) -> Growth:
    """Places, sizes and verdicts for all that waits. Pure."""
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
            # Work that we fail at holds up no other (point 33): it is left out, and said.
            broken.append((error.item, str(error)))
            demand.items = [each for each in demand.items if each is not error.item]


def _grow(
    view: View,
    snapshot: Snapshot,
    demand: Demand,
    memory: Memory,
    config: Config,
    now: float,
    broken: list[tuple[Item, str]],
) -> Growth:
    if not demand.items:  # as in most loops: there is nothing to look at machines for
        return _growth({}, (), set(), gangs.settle({}, view, snapshot, memory, config, now), broken, {})
    barred = misfits.in_force(memory.misfits, now)
    best = _best(view, snapshot, demand, config, barred)
    asked = Counter(best.new)
    for _ in range(_LAPS):
        if not best.new or not (best.left or _underway(view)):
            break
        # What is asked for may make room in another way: look at it as the next loop would, so that it
        # has nothing to add.
        best = _best(_grown(view, asked), snapshot, demand, config, barred)
        best.known = tuple(group.coming for group in view.groups.values())
        asked.update(best.new)
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
        words.verdicts(best, snapshot, kept.failed),
        held,
        kept,
        broken,
        best.packer.choose.misfits.found,
    )


def _growth(
    sizes: dict[str, int],
    verdicts: tuple[Verdict, ...],
    held: set[str],
    kept: gangs.Kept,
    broken: list[tuple[Item, str]],
    unfit: Mapping[str, str],
) -> Growth:
    booked = {name for booking in kept.bookings.values() for name in booking.machines if "#" not in name}
    return Growth(
        sizes=sizes,
        verdicts=(*verdicts, *(words.broken(item, why) for item, why in broken)),
        held=frozenset(held | booked),
        answers=kept.answers,
        bookings=kept.bookings,
        waiting=kept.waiting,
        exhausted=kept.exhausted,
        misfits=unfit,
        notices=(
            *misfits.notices(unfit),
            *(
                Notice(f"gang/{key}", "warning", f"{key}: {why}; its unused machines are free for others")
                for key, why in sorted(kept.failed.items())
            ),
            *(
                Notice(f"fault/{words.name(item)}", "error", f"a fault of ours: {words.name(item)}: {why}")
                for item, why in broken
            ),
        ),
    )


def _best(
    view: View, snapshot: Snapshot, demand: Demand, config: Config, barred: Mapping[str, Backoff]
) -> Plan:
    found = _plan(view, snapshot, demand, config, fresh=False, barred=barred)
    if not (_underway(view) and (found.new or found.left)):
        return found
    plans = [found, _plan(view, snapshot, demand, config, fresh=True, barred=barred)]
    # What comes was bought for somebody. Others that would do with any machine must not take it from those
    # that would not, and have one more bought in each loop: who needs a new one chooses first.
    if found.wanting:
        plans.append(_plan(view, snapshot, demand, config, fresh=False, barred=barred, first=found.wanting))
    return min(plans, key=lambda each: each.worth)


def _grown(view: View, asked: Mapping[int, int]) -> View:
    """The view, with what is asked for on its way."""
    groups = {
        name: replace(each, coming=each.coming + asked.get(place, 0))
        for place, (name, each) in enumerate(view.groups.items())
    }
    return replace(view, groups=groups)


def _underway(view: View) -> bool:
    return any(group.coming for group in view.groups.values()) or any(
        machine.state == "booting" and machine.group is not None for machine in view.machines
    )


def _plan(
    view: View,
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
        mark = packer.board.mark()
        try:
            if item.key is not None:
                count = _gang(packer, item)
            else:
                scope = Scope(None, READY) if item.low else EVERYWHERE
                count = packer.put(item.wanted[0].kind, item.wanted[0].count, scope)
        except Exception as error:
            raise _BrokenError(item, f"{type(error).__name__}: {error}") from error
        results.append(Result(item, packer.board.since(mark), count))
    packer.exchange.trim()
    found = Plan(packer, results)
    _assign(found)
    return found


# --- order --------------------------------------------------------------------------------------------------


def _oldest_gangs(demand: Demand) -> dict[int, float]:
    """Priority → since when its first gang waits."""
    found: dict[int, float] = {}
    for item in demand.items:
        if item.key is not None and not item.booked:
            found[item.priority] = min(item.created, found.get(item.priority, item.created))
    return found


def _order(
    packer: Packer, item: Item, gangs: Mapping[int, float], first: frozenset[int]
) -> tuple[object, ...]:
    """Higher priorities first; then what is promised; pods that wait for longer than any gang, gangs, and
    other pods; of pods those whose kind is in ``first``, and the harder to place.

    The scheduler goes by priority and age: machines that were bought for pods go to these, not to a gang that
    came later.
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
    """Those that want machines for themselves open machines that others fill."""
    if any(near.topology == HOSTNAME and near.own for near in kind.apart):
        return 0
    if kind.shape.ports or any(even.topology == HOSTNAME for even in kind.even):
        return 1
    return 3 if kind.plain else 2


# --- gangs --------------------------------------------------------------------------------------------------


def _gang(packer: Packer, item: Item) -> int:
    """Places for all of a gang (or for its least number), or for none of it."""
    if any(each.kind.lost for each in item.wanted) or item.least > item.count:
        return 0
    last = READY if item.cooling is not None or item.low else NEW
    if item.site is not None and _ever(packer, item, item.site):
        scopes = [Scope(item.site, last)]
    else:
        scopes = [Scope(site, last) for site in packer.choose.sites()]
        if item.gang is not None and item.gang.across:
            scopes.append(Scope(None, last))
    board = packer.board
    best: tuple[tuple[object, ...], Scope] | None = None
    for place, scope in enumerate(scopes):
        mark = board.mark()
        count = _try(packer, item, scope)
        if count < item.least:
            packer.undo(mark)
            continue
        opened = board.opened(mark)
        if not opened and count == item.count:
            return count
        worth = (
            item.count - count,
            bool(opened),
            scope.site is None,
            packer.choose.rank(board.since(mark)),
            round(sum(float(packer.stock.price[board.group[row]]) for row in opened), 6),
            place,
        )
        packer.undo(mark)
        if best is None or worth < best[0]:
            best = worth, scope
    return _try(packer, item, best[1]) if best is not None else 0


def _ever(packer: Packer, item: Item, site: str) -> bool:
    """Whether a site might have room for the rest of a gang, some of which the scheduler has put there: where
    it never will, the rest goes elsewhere rather than wait for ever."""
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
    never = "" if result.count else words.never(found.packer, result.item)
    return gangs.Standing(
        placed=bool(result.count),
        up=bool(result.count) and all(tier <= READY for tier, _ in whats),
        started=any(tier == NEW for tier, _ in whats),
        never=never,
        machines=tuple(sorted({name for _, name in whats})),
    )


# --- what rows are ------------------------------------------------------------------------------------------


def _assign(found: Plan) -> None:
    """Set the machines that a plan opened against what is on its way: the rest is new."""
    packer, board = found.packer, found.packer.board
    opened: dict[int, list[int]] = {}
    for row in range(packer.base, board.n):
        if board.holds[row]:
            opened.setdefault(int(board.group[row]), []).append(row)
    for group, rows in opened.items():
        left = list(packer.units[group])
        wanted = Counter(board.zones[row] for row in rows if board.locked[row])
        number = packer.stock.zones[group].needed(wanted, len(rows))
        found.new[group] = max(0, number - len(left))
        name = packer.groups[group].group.name
        fresh = 0
        for row in sorted(rows, key=lambda at: not board.locked[at]):
            zone = board.zones[row]
            unit = next((each for each in left if each.zone == zone), None)
            if unit is None and left and not board.locked[row]:
                unit = left[0]
            if unit is not None:
                left.remove(unit)
            else:
                unit = Unit(zone, NEW, f"{name}#{packer.groups[group].coming + fresh}")
                fresh += 1
            found.rows[row] = unit
    found.new = {group: units for group, units in found.new.items() if units > 0}
