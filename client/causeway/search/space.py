"""The parameters of a search: draw, count, number.

A choice that brings parameters makes the space a tree: which parameters a trial has depends on what was
chosen. All functions walk it in the same way (``walk``), and differ in how a value is picked.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from causeway.search.fields import FloatRange, IntRange, LogRange, plain
from causeway.search.trials import Parameters, Value

Range: TypeAlias = LogRange | IntRange | FloatRange
Values: TypeAlias = Range | Sequence[Value | Mapping[str, "Tree"]]
Tree: TypeAlias = Mapping[str, Values]
"""Name → its values, as in ``Sweep.parameters``."""
_DIGITS = 6
"""Significant digits of a drawn number: more would only be hard to read."""


@dataclass(frozen=True)
class Dimension:
    """A parameter at its place in the tree."""

    name: str
    path: str
    """Its name after the choices that lead to it: ``opt=sgd/momentum``. Two branches may use the same
    name."""
    values: Range | tuple[Value, ...]
    branches: tuple[Tree, ...] = ()
    """For choices: the parameters that each brings."""

    @property
    def levels(self) -> int | None:
        """The number of its values; None if it is continuous."""
        if isinstance(self.values, tuple):
            return len(self.values)
        step = getattr(self.values, "step", None)
        if step is None:
            return None
        low, high = self.values.ends
        assert isinstance(step, int | float)
        return math.floor((high - low) / step + 1e-9) + 1

    def level(self, index: int) -> Value:
        """Return one of the ``levels``."""
        if isinstance(self.values, tuple):
            return self.values[index]
        if isinstance(self.values, IntRange):
            return self.values.ends[0] + index * self.values.step
        step = getattr(self.values, "step", None) or 0.0
        return float(f"{self.values.ends[0] + index * step:.12g}")

    def below(self, choice: Value) -> str:
        """The path prefix of the parameters that a choice brings."""
        return f"{self.path}={plain(choice)}/"

    def index(self, value: Value) -> int | None:
        """Return the index of a choice, compared by its text: ``1`` is not ``true``. None if it is not a
        choice."""
        assert isinstance(self.values, tuple)
        texts = [plain(each) for each in self.values]
        return texts.index(plain(value)) if plain(value) in texts else None

    def has(self, value: Value) -> bool:
        if isinstance(self.values, tuple):
            return self.index(value) is not None
        if isinstance(value, bool | str):
            return False
        low, high = self.values.ends
        return low <= value <= high and (isinstance(value, int) or not isinstance(self.values, IntRange))

    def at(self, unit: float) -> Value:
        """Return the value at a position from 0 to 1, linear or logarithmic for numbers."""
        if (levels := self.levels) is not None:
            return self.level(min(int(unit * levels), levels - 1))
        assert not isinstance(self.values, tuple)
        low, high = self.values.ends
        if isinstance(self.values, LogRange):
            return self.tidy(math.exp(math.log(low) + unit * (math.log(high) - math.log(low))))
        return self.tidy(low + unit * (high - low))

    def unit(self, value: float) -> float:
        """Return the position of a number, in the middle of its step: ``at`` maps it back."""
        assert not isinstance(self.values, tuple)
        low, high = self.values.ends
        if (levels := self.levels) is not None:
            step = getattr(self.values, "step", None) or 1
            return (round((value - low) / step) + 0.5) / levels
        if isinstance(self.values, LogRange):
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def tidy(self, value: float) -> float:
        """Round a drawn number to meaningful digits, within its ends."""
        assert not isinstance(self.values, tuple)
        low, high = self.values.ends
        if (levels := self.levels) is not None:
            step = getattr(self.values, "step", None) or 1
            return float(self.level(min(max(round((value - low) / step), 0), levels - 1)))
        return min(max(float(f"{value:.{_DIGITS}g}"), low), high)


Pick: TypeAlias = Callable[[Dimension], Value]


def walk(tree: Tree, pick: Pick, prefix: str = "") -> dict[str, Value]:
    """Return parameters by name; ``pick`` chooses each value, following the choices made before."""
    found: dict[str, Value] = {}
    for dimension in roots(tree, prefix):
        value = found[dimension.name] = pick(dimension)
        if dimension.branches:
            index = dimension.index(value)
            assert index is not None
            found |= walk(dimension.branches[index], pick, dimension.below(value))
    return found


def roots(tree: Tree, prefix: str = "") -> Iterator[Dimension]:
    """Yield the parameters that every trial has."""
    for name, values in tree.items():
        if isinstance(values, LogRange | IntRange | FloatRange):
            yield Dimension(name, prefix + name, values)
        else:
            keys = tuple(next(iter(each)) if isinstance(each, Mapping) else each for each in values)
            branches = tuple(
                next(iter(each.values())) if isinstance(each, Mapping) else {} for each in values
            )
            yield Dimension(name, prefix + name, keys, branches)


def dimensions(tree: Tree, prefix: str = "") -> Iterator[Dimension]:
    """Yield all parameters, including those of branches."""
    for dimension in roots(tree, prefix):
        yield dimension
        for index, branch in enumerate(dimension.branches):
            yield from dimensions(branch, dimension.below(dimension.level(index)))


def always(tree: Tree) -> frozenset[str]:
    """Return the names that every trial has."""
    found: set[str] = set()
    for dimension in roots(tree):
        found.add(dimension.name)
        if dimension.branches:
            found |= frozenset.intersection(*map(always, dimension.branches))
    return frozenset(found)


def size(tree: Tree) -> int | None:
    """Return the number of combinations; None if infinite."""
    sizes = [_size(dimension) for dimension in roots(tree)]
    return None if None in sizes else math.prod(each for each in sizes if each is not None)


def _size(dimension: Dimension) -> int | None:
    if not dimension.branches:
        return dimension.levels
    sizes = [size(branch) for branch in dimension.branches]
    return None if None in sizes else sum(each for each in sizes if each is not None)


def nth(tree: Tree, number: int) -> dict[str, Value]:
    """Return one of the ``size`` combinations, counted from 0."""
    found: dict[str, Value] = {}
    for dimension in roots(tree):
        count = _size(dimension)
        assert count is not None
        number, rest = divmod(number, count)
        if not dimension.branches:
            found[dimension.name] = dimension.level(rest)
            continue
        for index, branch in enumerate(dimension.branches):
            inner = size(branch) or 0
            if rest < inner:
                found[dimension.name] = dimension.level(index)
                found |= nth(branch, rest)
                break
            rest -= inner
    return found


def drawn(tree: Tree, draw: random.Random) -> dict[str, Value]:
    """Draw parameters: each value, or order of magnitude, is equally likely."""
    return walk(tree, lambda dimension: dimension.at(draw.random()))


def paths(tree: Tree, parameters: Parameters) -> dict[str, tuple[Dimension, Value]] | None:
    """Return a trial's parameters by path; None if they are not in this space: the search was changed
    since."""
    found: dict[str, tuple[Dimension, Value]] = {}

    class Foreign(Exception):  # noqa: N818 - not an error
        pass

    def pick(dimension: Dimension) -> Value:
        value = parameters.get(dimension.name)
        if value is None or not dimension.has(value):
            raise Foreign
        found[dimension.path] = (dimension, value)
        return value

    try:
        walk(tree, pick)
    except Foreign:
        return None
    return found


Key: TypeAlias = tuple[tuple[str, str], ...]


def key(parameters: Parameters) -> Key:
    """A key that is equal for equal parameters, even after a round trip through text."""
    return tuple(sorted((name, plain(value)) for name, value in parameters.items()))
