"""IPv4 blocks as plain numbers, and the free space of a block.

A block is a pair ``(start, prefix)``: its first address as an integer and its prefix length. Two blocks are
either disjoint or one contains the other, so the free space is always a small set of whole blocks (a buddy
allocator).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from ipaddress import IPv4Network
from typing import TypeAlias

Block: TypeAlias = tuple[int, int]
"""First address as an integer, and prefix length."""


def block_of(network: IPv4Network) -> Block:
    """The same block as numbers."""
    return int(network.network_address), network.prefixlen


def network_of(block: Block) -> IPv4Network:
    """The same block as an ``IPv4Network``."""
    return IPv4Network(block)


def size(prefix: int) -> int:
    """The number of addresses in a block of this prefix length, including network and broadcast address."""
    return 1 << (32 - prefix)


def holds(outer: Block, inner: Block) -> bool:
    """Whether ``inner`` lies in ``outer``, or is the same."""
    return outer[1] <= inner[1] and inner[0] >> (32 - outer[1]) == outer[0] >> (32 - outer[1])


def in_words(prefix: int) -> str:
    """``a /20 (4,096 addresses)``."""
    article = "an" if prefix in (8, 11, 18) else "a"
    count = size(prefix)
    return f"{article} /{prefix} ({count:,} {'address' if count == 1 else 'addresses'})"


class FreeSpace:
    """The free space of one block: a set of whole blocks per prefix length, none of which can be merged.

    Taking a block is O(32), whatever the number of blocks; blocks are never released.
    """

    __slots__ = ("_free", "_order", "_prefix")

    def __init__(self, block: Block) -> None:
        start, self._prefix = block
        self._free: list[set[int]] = [set() for _ in range(33)]
        # The same starts as heaps, lowest first. A start that is no longer in its set is skipped when popped.
        self._order: list[list[int]] = [[] for _ in range(33)]
        self._add(start, self._prefix)

    def _add(self, start: int, prefix: int) -> None:
        self._free[prefix].add(start)
        heappush(self._order[prefix], start)

    def take(self, block: Block) -> None:
        """Mark a block as used. Does nothing unless all of it is free."""
        start, prefix = block
        for outer in range(prefix, self._prefix - 1, -1):
            base = start >> (32 - outer) << (32 - outer)
            if base in self._free[outer]:
                self._free[outer].remove(base)
                self._split(base, outer, block)
                return

    def _split(self, base: int, outer: int, block: Block) -> None:
        """Add all of ``outer`` except ``block`` to the free space, by halving."""
        start, prefix = block
        for half in range(outer + 1, prefix + 1):
            upper = base + size(half)
            if start >= upper:
                self._add(base, half)
                base = upper
            else:
                self._add(upper, half)

    def allocate(self, prefix: int, avoid: Sequence[Block] = ()) -> Block | None:
        """The lowest block in the smallest free block that is large enough; ``None`` if there is none.

        Best fit keeps large blocks free. ``avoid``: ranges that the block must not overlap.
        """
        if avoid:
            found = next(self._clear(prefix, avoid), None)
            if found is not None:
                self.take(found)
            return found
        for outer in range(prefix, self._prefix - 1, -1):
            order, free = self._order[outer], self._free[outer]
            while order:
                start = heappop(order)
                if start in free:
                    free.remove(start)
                    self._split(start, outer, (start, prefix))
                    return start, prefix
        return None

    def _clear(self, prefix: int, avoid: Sequence[Block]) -> Iterator[Block]:
        """Yield blocks of this size that overlap none of ``avoid``, best fit first."""
        for outer in range(prefix, self._prefix - 1, -1):
            for start in sorted(self._free[outer]):
                yield from _parts((start, outer), prefix, avoid)

    def count(self) -> int:
        """The number of free addresses."""
        return sum(len(starts) * size(prefix) for prefix, starts in enumerate(self._free))

    def largest(self) -> int | None:
        """The prefix length of the largest free block; ``None`` when nothing is free."""
        return next((prefix for prefix, starts in enumerate(self._free) if starts), None)


def _parts(block: Block, prefix: int, avoid: Sequence[Block]) -> Iterator[Block]:
    """Yield parts of ``block`` of this size that overlap none of ``avoid``: the first of each free stretch,
    lowest first."""
    start, outer = block
    if any(holds(other, block) for other in avoid):
        return
    inside = [other for other in avoid if holds(block, other)]
    if not inside:
        yield start, prefix
    elif outer < prefix:
        yield from _parts((start, outer + 1), prefix, inside)
        yield from _parts((start + size(outer + 1), outer + 1), prefix, inside)
