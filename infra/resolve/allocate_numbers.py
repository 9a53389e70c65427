"""Allocates numbers: requests and the lock file give one permanent number each.

The rules are those of the address plan (`infra.resolve.allocate_blocks`): an explicit number is used as it
is, one in the lock file is kept, even if its owner left the spec, and the others get the lowest number that
was never used, in order of names. So adding, removing or moving anything does not change another number, and
a new user never inherits the files of a former one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from infra.errors import Problem
from infra.resolve.claims import RELEASE, lineage

Ranges: TypeAlias = tuple[range, ...]
"""The ranges that numbers are allocated from, in order. A stated number may lie outside of them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for one number.

    ``owner`` is its key, in the lock file too: ``sites/us-west-2/asn``. The last part of the key is the
    kind; within a kind, a number has one owner.
    """

    owner: str
    ranges: Ranges
    number: int | None = None
    """The number stated by the user, or None."""
    path: str = ""
    """The path in the spec, for messages."""
    keep: bool = True
    """Whether a stated number must not change once it is in the lock. If False, the lock file holds it only
    if it was allocated."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every number, decided. Use only a result without problems."""

    numbers: Mapping[str, int]
    """Owner → number, sorted by owner."""
    lock: Mapping[str, int]
    """The contents of the new lock file, sorted by owner."""
    problems: tuple[Problem, ...]
    """NUM001: two owners of one number; NUM002: no number left; NUM003: differs from the lock file."""


def kind_of(owner: str) -> str:
    """The kind of an owner's number: ``asn`` of ``sites/us-west-2/asn``.

    A gid is of the same kind as a uid: each user has a private group with the user's number, and the pods of
    a group's namespace run with the group's.
    """
    kind = owner.rpartition("/")[2]
    return "uid" if kind == "gid" else kind


def allot(wanted: Iterable[Wanted], held: Mapping[str, int]) -> Numbers:
    """Allocate a number for each request. The order of ``wanted`` does not matter.

    ``held``: owner → number from the lock file. User errors are not raised: see ``problems``.
    """
    by_owner = {one.owner: one for one in sorted(wanted, key=lambda one: lineage(one.owner))}
    allotter = _Allotter(by_owner, held)
    numbers = allotter.allot()
    kept = {
        owner: number
        for owner, number in numbers.items()
        if by_owner[owner].keep or by_owner[owner].number is None
    }
    retired = {owner: number for owner, number in held.items() if owner not in by_owner}
    return Numbers(_sorted(numbers), _sorted(retired | kept), tuple(allotter.problems))


@dataclass(slots=True)
class _Allotter:
    wanted: Mapping[str, Wanted]
    held: Mapping[str, int]
    owners: defaultdict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Kind → number → its owner."""
    problems: list[Problem] = field(default_factory=list)

    def allot(self) -> dict[str, int]:
        stated = {owner: one.number for owner, one in self.wanted.items() if one.number is not None}
        for owner, number in stated.items():
            self._claim(owner, number)
            self._compare(self.wanted[owner], number)
        kept = {owner: number for owner, number in self.held.items() if owner not in stated}
        for owner, number in _sorted(kept).items():
            self._claim(owner, number)
        found = stated | {owner: number for owner, number in kept.items() if owner in self.wanted}
        self._fill(found)
        return found

    def _claim(self, owner: str, number: int) -> None:
        other = self.owners[kind_of(owner)].setdefault(number, owner)
        if other == owner:
            return
        # The earlier owner stated its number, or both are held by the lock, and such a lock file is refused
        # by ``parse``.
        if owner not in self.wanted:
            message = f"{owner}, gone from the spec but held by the lock file, has {number} already"
            self._wrong("NUM001", other, message, RELEASE)
        elif self.wanted[owner].number is None:
            message = f"{owner} has {number} already, and the lock file holds it"
            self._wrong("NUM001", other, message, "state another")
        else:
            self._wrong("NUM001", owner, f"{owner} and {other} are both {number}", "change one of them")

    def _compare(self, one: Wanted, number: int) -> None:
        held = self.held.get(one.owner)
        if one.keep and held is not None and held != number:
            message = (
                f"a live number can't be changed: the lock file holds {held} for {one.owner}; "
                f"the spec says {number}"
            )
            self._wrong("NUM003", one.owner, message, f"go back to {held}, or, {RELEASE}")

    def _fill(self, found: dict[str, int]) -> None:
        # Each range is iterated once for all requests, as numbers before the current position are taken.
        walks: dict[tuple[str, Ranges], Iterator[int]] = {}
        for owner, one in self.wanted.items():
            if owner in found:
                continue
            kind = kind_of(owner)
            walk = walks.setdefault((kind, one.ranges), chain.from_iterable(one.ranges))
            number = next((each for each in walk if each not in self.owners[kind]), None)
            if number is None:
                self._wrong("NUM002", owner, f"no number is left for {owner}", "state one")
            else:
                self.owners[kind][number] = owner
                found[owner] = number

    def _wrong(self, code: str, owner: str, message: str, hint: str) -> None:
        path = self.wanted[owner].path if owner in self.wanted else ""
        self.problems.append(Problem(code, path, message, hint=hint))


def _sorted(numbers: Mapping[str, int]) -> dict[str, int]:
    return {owner: numbers[owner] for owner in sorted(numbers, key=lineage)}
