"""The scheduling cycle: the head of each queue, its flavor, the order of heads, and admission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import GPU, NO_CAPACITY, Shape
from infra.catalogue.labels import GPU_CLASS, LIMITED_GPUS, SITE
from infra.simulator.kueue import preemption
from infra.simulator.kueue.quota import Key, Ledger, Use
from infra.simulator.kueue.rules import Choice, Rules
from infra.simulator.kueue.workload import Workload


class Mode(IntEnum):
    """How a flavor could be assigned: higher is better."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


@dataclass(slots=True)
class _Entry:
    """The head of a queue in one cycle."""

    workload: Workload
    choice: Choice | None
    mode: Mode
    use: Use
    victims: list[Workload] = field(default_factory=list)


Room = Callable[[Choice, Workload], bool]
"""Whether a flavor's machines currently have room for all pods of a workload."""

_HELD: Final = Taint(NO_CAPACITY)


class Admission:
    """Queues and quotas. It decides; `Kueue` executes."""

    def __init__(self, rules: Rules, room: Room, usage: Callable[[str], float] | None = None) -> None:
        self.rules = rules
        self.ledger = Ledger(rules)
        self.waiting: list[Workload] = []
        self.admitted: list[Workload] = []
        """Workloads that hold quota."""
        self.held: set[str] = set()
        """Flavors with the autoscaler's taint."""
        self._room = room
        self._usage = usage
        self._covered = rules.covered
        self._regions = frozenset(site for each in rules.choices for site in each.sites or ())
        self._sticky: dict[str, Workload] = {}
        """Queue → the workload for which others are being preempted."""

    def cycle(self, now: float) -> tuple[list[Workload], list[Workload]]:
        """Run cycles until nothing changes: workloads that got quota, and workloads to be preempted."""
        reserved: list[Workload] = []
        leaving: list[Workload] = []
        while True:
            entries = [self._nominate(each) for each in self._heads(now)]
            moved = False
            taken: list[Workload] = []
            pending: list[tuple[str, Use]] = []
            while entries:
                entry = min(entries, key=self._order)
                entries.remove(entry)
                moved |= self._process(entry, now, reserved, leaving, taken, pending)
            for queue, use in pending:
                self.ledger.add(queue, use, -1)
            if not moved:
                return reserved, leaving

    def finish(self, workload: Workload, pods: int) -> None:
        """Pods have finished; their quota is released."""
        assert workload.choice is not None
        self.ledger.add(workload.queue, workload.use, -1)
        workload.count -= pods
        workload.use = self._wanted(workload, workload.choice)
        self.ledger.add(workload.queue, workload.use)
        if not workload.count:
            self.release(workload)

    def release(self, workload: Workload) -> None:
        """Release all of its quota."""
        self.ledger.add(workload.queue, workload.use, -1)
        self.admitted.remove(workload)
        workload.choice, workload.use, workload.leaving = None, {}, False

    def wake(self) -> None:
        """Something has changed: all waiting workloads are reconsidered."""
        for each in self.waiting:
            each.parked = False

    def _wanted(self, workload: Workload, choice: Choice) -> dict[Key, int]:
        """Its total request for a flavor's quota, and for its user's limit."""
        found = {
            (choice.flavor.name, name): amount * workload.count
            for name, amount in workload.shape.requests
            if name in self._covered
        }
        limit = self.rules.limits.get((workload.queue, workload.namespace))
        gpus = dict(workload.shape.requests).get(GPU, 0)
        if limit is not None and gpus:
            found[limit, LIMITED_GPUS] = gpus * workload.count
        return found

    # The heads

    def _heads(self, now: float) -> list[Workload]:
        found: dict[str, Workload] = {}
        for each in self.waiting:
            if each.parked or each.until > now:
                continue
            best = found.get(each.queue)
            if best is None or self._rank(each) < self._rank(best):
                found[each.queue] = each
        return list(found.values())

    def _rank(self, each: Workload) -> tuple[float, bool, int, float, str]:
        used = self._usage(each.namespace) if self._usage is not None else 0.0
        return used, self._sticky.get(each.queue) is not each, -each.priority, each.since, each.key

    # Flavors

    def _nominate(self, workload: Workload) -> _Entry:
        best, best_rank = _Entry(workload, None, Mode.NO_FIT, {}), (Mode.NO_FIT, False)
        for choice in self.rules.choices:
            if not self.takes(choice, workload):
                continue
            use = self._wanted(workload, choice)
            rank = min(self._mode(workload, key, amount) for key, amount in use.items())
            if rank[0] is Mode.FIT:
                # What fits the quota but not the topology tries the next flavor in the next cycle.
                if choice.topology and not choice.checked and not self._room(choice, workload):
                    continue
                return _Entry(workload, choice, Mode.FIT, use)
            if rank[0] is not Mode.NO_FIT and rank > best_rank:
                best, best_rank = _Entry(workload, choice, rank[0], use), rank
        if best.mode in (Mode.PREEMPT, Mode.RECLAIM):
            keys = [key for key, amount in best.use.items() if amount > self.ledger.free[key]]
            best.victims = self._victims(workload, best.use, keys)
        return best

    def takes(self, choice: Choice, workload: Workload) -> bool:
        """Whether pods may use a flavor at all: by its taints and labels, their topology, and the policies
        that exclude pools with small nodes or at other sites."""
        shape, flavor = workload.shape, choice.flavor
        gpus = dict(shape.requests).get(GPU, 0)
        selector = dict(shape.selector)
        if choice.topology != (gpus > 0):
            return False
        if choice.gpus is not None and gpus > choice.gpus:
            return False
        classes = self.rules.classes.get(shape.priority, self.rules.classes.get(None))
        if gpus and classes is not None and flavor.labels.get(GPU_CLASS) not in classes:
            return False
        site = selector.get(SITE)
        if site is not None and (site in self._regions if choice.sites is None else site not in choice.sites):
            return False
        if any(flavor.labels[key] != value for key, value in selector.items() if key in flavor.labels):
            return False
        taints = (*flavor.taints, _HELD) if flavor.name in self.held else flavor.taints
        return all(_tolerated(taint, shape, choice) for taint in taints)

    def _mode(self, workload: Workload, key: Key, amount: int) -> tuple[Mode, bool]:
        """The mode for one resource, and whether it needs no borrowing, which is better for equal modes."""
        victims: list[Workload] = []
        if amount > self.ledger.total[key]:
            mode = Mode.NO_FIT
        elif amount <= self.ledger.free[key]:
            mode = Mode.FIT
        elif victims := self._victims(workload, {key: amount}, [key]):
            own = any(each.queue == workload.queue for each in victims)
            mode = Mode.PREEMPT if own else Mode.RECLAIM
        else:
            mode = Mode.NO_CANDIDATES
        with self.ledger.without(victims):
            return mode, not self.ledger.borrows(workload.queue, [key], {key: amount})

    def _victims(self, workload: Workload, use: Use, keys: Sequence[Key]) -> list[Workload]:
        return preemption.victims(self.ledger, self.admitted, workload, use, keys, self._usage)

    # Order, and result

    def _order(self, entry: _Entry) -> tuple[bool, float, int, float]:
        """The sort key of queues' heads: within the own quota first, then the smaller share, the higher
        priority, the older."""
        work = entry.workload
        borrows = self.ledger.borrows(work.queue, entry.use, entry.use)
        return borrows, self.ledger.share(work.queue, entry.use), -work.priority, work.since

    def _process(
        self,
        entry: _Entry,
        now: float,
        reserved: list[Workload],
        leaving: list[Workload],
        taken: list[Workload],
        pending: list[tuple[str, Use]],
    ) -> bool:
        work = entry.workload
        if (
            entry.choice is None
            or entry.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES)
            or (entry.mode is not Mode.FIT and not entry.victims)
        ):
            for each in self.waiting:
                if each is work or (each.queue == work.queue and _alike(each, work)):
                    each.parked = True
            return True
        if any(each in taken for each in entry.victims):
            return False
        with self.ledger.without([*taken, *entry.victims]):
            if not self.ledger.fits(entry.use):
                return False
        if entry.victims:
            taken += entry.victims
            self.ledger.add(work.queue, entry.use)
            pending.append((work.queue, entry.use))
            self._sticky[work.queue] = work
            new = [each for each in entry.victims if not each.leaving]
            for each in new:
                each.leaving = True
            leaving += new
            return False
        self.waiting.remove(work)
        self.admitted.append(work)
        self.ledger.add(work.queue, entry.use)
        work.choice, work.use, work.reserved = entry.choice, entry.use, now
        if self._sticky.get(work.queue) is work:
            del self._sticky[work.queue]
        reserved.append(work)
        return True


def _tolerated(taint: Taint, shape: Shape, choice: Choice) -> bool:
    if taint.effect == "PreferNoSchedule":
        return True
    return any(
        each.key in ("", taint.key)
        and each.effect in ("", taint.effect)
        and (each.operator == "Exists" or each.value == taint.value)
        for each in (*shape.tolerations, *choice.flavor.tolerations)
    )


def _alike(one: Workload, other: Workload) -> bool:
    """Whether a result for one also holds for the other: Kueue's scheduling hash."""
    return one.shape is other.shape and one.count == other.count and one.priority == other.priority
