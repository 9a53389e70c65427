"""Checks all settled claims in one pass: which overlap, and which take space from which parent.

Two blocks are disjoint or one contains the other, so blocks sorted by first address, larger first, form a
forest, and a stack holds the path to the current one. O(n log n).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from infra.resolve.blocks import Block, block_of, holds
from infra.resolve.claims import Claim, Overlap, Source, lineage

Ancestors: TypeAlias = Callable[[Claim], tuple[str, ...]]
"""The owners that contain a claim, nearest first, then its root. A claim may lie in these and in any root."""

_OUTERMOST_FIRST = {Source.ROOT: 0, Source.RESERVED: 1, Source.SPEC: 2, Source.LOCK: 2, Source.RETIRED: 3}
_TO_BLAME_FIRST = {Source.SPEC: 0, Source.LOCK: 1, Source.ROOT: 2, Source.RETIRED: 3, Source.RESERVED: 4}
_NOT_IN_USE = frozenset({Source.RESERVED, Source.RETIRED, Source.ROOT})
"""Claims that may overlap each other, except two roots."""


@dataclass(slots=True)
class Survey:
    """The result of the pass."""

    overlaps: list[Overlap] = field(default_factory=list)
    """Each overlap once, without those that only follow from an overlap of their parents."""
    inside: defaultdict[str, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    """Parent (owner or root) → the claims that take space from it, by address, larger first."""


@dataclass(slots=True)
class _Level:
    """One block on the path, and all claims with exactly this block."""

    block: Block
    claims: dict[str, Claim] = field(default_factory=dict)
    root: str | None = None
    innermost: Claim | None = None
    """The last claim in the chain of valid nesting: the next claim must lie in this one."""

    def clash(self, claim: Claim, ancestors: tuple[str, ...]) -> Claim | None:
        """The claim that must not share these addresses with ``claim``, or None."""
        inner = self.innermost
        if inner is None or inner.owner in ancestors or (inner.owner == self.root and not _is_root(claim)):
            return None
        return inner

    def parent(self, claim: Claim, ancestors: tuple[str, ...]) -> str | None:
        """Which of the claims with this block is the parent of ``claim``: the nearest, or the root; None for
        a root."""
        if _is_root(claim):
            return None
        return next((name for name in ancestors if name in self.claims), self.root)

    def add(self, claim: Claim, ancestors: tuple[str, ...]) -> None:
        if self.clash(claim, ancestors) is None:
            self.innermost = claim
        self.claims.setdefault(claim.owner, claim)
        if _is_root(claim) and self.root is None:
            self.root = claim.owner


def _is_root(claim: Claim) -> bool:
    return claim.source is Source.ROOT


def survey(claims: Iterable[Claim], ancestors: Ancestors) -> Survey:
    """Sweep over claims with settled blocks. The order of ``claims`` does not matter."""
    found = Survey()
    clashes: list[tuple[Claim, Claim]] = []
    way: list[_Level] = []
    # Sorted as integers: comparing networks would take longer than the rest of the pass.
    entries = sorted(
        (
            (*block_of(claim.block), _OUTERMOST_FIRST[claim.source], lineage(claim.owner), claim)
            for claim in claims
        ),
        key=lambda entry: entry[:4],
    )
    for start, prefix, _, _, claim in entries:
        block = start, prefix
        while way and not holds(way[-1].block, block):
            way.pop()
        within = ancestors(claim)
        for level in reversed(way):
            if (other := level.clash(claim, within)) is not None:
                clashes.append((claim, other))
            if (parent := level.parent(claim, within)) is not None:
                found.inside[parent].append(claim)
                break
        if not way or way[-1].block != block:
            way.append(_Level(block))
        way[-1].add(claim, within)
    found.overlaps = _to_report(clashes, ancestors)
    return found


def _to_report(clashes: list[tuple[Claim, Claim]], ancestors: Ancestors) -> list[Overlap]:
    def matter(a: Claim, b: Claim) -> bool:
        if a.source is b.source is Source.ROOT:
            return True
        if a.source in _NOT_IN_USE and b.source in _NOT_IN_USE:
            return False
        # A child larger than its parent is outside of it, which has its own error.
        return a.owner not in ancestors(b) and b.owner not in ancestors(a)

    matters = [(a, b) for a, b in clashes if matter(a, b)]
    pairs = {frozenset((a.owner, b.owner)) for a, b in matters}

    def follows(a: Claim, b: Claim) -> bool:
        of_a, of_b = (a.owner, *ancestors(a)), (b.owner, *ancestors(b))
        return any(
            frozenset((x, y)) in pairs for x in of_a for y in of_b if (x, y) != (a.owner, b.owner) and x != y
        )

    overlaps = []
    for inner, outer in matters:
        if not follows(inner, outer):
            a, b = sorted((inner, outer), key=lambda claim: _TO_BLAME_FIRST[claim.source])
            overlaps.append(Overlap(a, b))
    return overlaps
