"""A plan: where pending pods are placed, and which machines that needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.autoscaler.placement.bin_packing import Packer
from infra.autoscaler.placement.capacity import Unit
from infra.autoscaler.placement.demand import Item
from infra.autoscaler.placement.node_matrix import COMING, NEW, Put


@dataclass(slots=True)
class Result:
    """Where an item's pods were placed."""

    item: Item
    puts: list[Put]
    count: int


@dataclass(slots=True)
class Plan:
    """A complete plan."""

    packer: Packer
    results: list[Result]
    rows: dict[int, Unit] = field(default_factory=dict)
    """Rows that the plan opened → a starting machine, or a new one."""
    new: dict[int, int] = field(default_factory=dict)
    """Group → units to request."""
    known: tuple[int, ...] | None = None
    """By group, the number of units that start in any case, if the plan matched some of its own with
    these."""

    def what(self, row: int) -> tuple[int, str]:
        """The tier of a row and its machine's name."""
        unit = self.rows.get(row)
        matrix = self.packer.matrix
        tier, name = (
            (unit.tier, unit.name) if unit is not None else (int(matrix.tier[row]), matrix.names[row])
        )
        if tier == COMING and self.known is not None:
            number = int(name.rpartition("#")[2])
            return (tier if number < self.known[int(matrix.group[row])] else NEW), name
        return tier, name

    @property
    def idle(self) -> Counter[int]:
        """Group → starting units without an instance on which nothing is placed."""
        matrix, packer = self.packer.matrix, self.packer
        found = Counter(
            int(matrix.group[row])
            for row in range(packer.base)
            if matrix.tier[row] == COMING and not matrix.holds[row]
        )
        used = {unit.name for unit in self.rows.values()}
        for group, units in enumerate(packer.units):
            found[group] += sum(unit.tier == COMING and unit.name not in used for unit in units)
        return found

    @property
    def left(self) -> bool:
        """Whether some of the work has no place."""
        return any(each.count < each.item.count for each in self.results)

    @property
    def at_limits(self) -> bool:
        """Whether no more machines can be requested for any of the work. Then a repetition would request
        nothing, and take as long as the plan did."""
        room = self.packer.capacity.open()
        return not room.any() or not any(
            room[self.packer.choose.choice(each.kind).groups].any()
            for result in self.results
            for each in result.item.wanted
        )

    @property
    def wanting(self) -> frozenset[int]:
        """Kinds of single pods that are placed on machines to be started, or nowhere."""
        found = set()
        for each in self.results:
            if each.item.key is None:
                kind = each.item.wanted[0].kind.index
                if each.count < each.item.count or any(
                    (put.rows >= self.packer.base).any() for put in each.puts
                ):
                    found.add(kind)
        return frozenset(found)

    def worth_of(self, asked: Mapping[int, int]) -> tuple[tuple[int, ...], float, int]:
        """The quality of the plan if these units are requested: lower is better."""
        left: Counter[int] = Counter()
        for each in self.results:
            left[each.item.priority] += each.item.count - each.count
        cost = sum(float(self.packer.capacity.price[group]) * units for group, units in asked.items())
        return (
            tuple(left[priority] for priority in sorted(left, reverse=True)),
            round(cost, 6),
            sum(asked.values()),
        )
