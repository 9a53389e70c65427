"""The address plan as a tree with sizes and use, as ``invoke addresses`` shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network

from infra.resolve.allocate_blocks import Plan
from infra.resolve.blocks import FreeSpace, block_of, holds
from infra.resolve.claims import Claim, Source, above


@dataclass(frozen=True, slots=True)
class Node:
    """A block and the blocks in it."""

    owner: str
    """The owner's key, a root's name, or the reason why a range is reserved."""
    block: IPv4Network
    source: Source
    used: int
    """Addresses of its children; without children, all addresses."""
    largest_free: int | None
    """Prefix length of the largest block still free; ``None`` when nothing is."""
    children: tuple[Node, ...] = ()
    """By address."""

    @property
    def size(self) -> int:
        """The number of addresses, including network and broadcast address."""
        return self.block.num_addresses

    @property
    def free(self) -> int:
        """The number of addresses that are not yet allocated."""
        return self.size - self.used


def tree(plan: Plan) -> tuple[Node, ...]:
    """The roots, and the blocks outside of them, by address, each with all blocks in it.

    Reserved ranges and retired blocks are included. A plan with failures has a tree too, which then contains
    blocks in places where they are not allowed.
    """
    roots = [Claim(root.name, root.block, Source.ROOT, root.path) for root in plan.roots]
    below: defaultdict[str, list[Claim]] = defaultdict(list)
    top = list(roots)
    known = {*plan.claims, *(root.name for root in plan.roots)}

    def place(claim: Claim, parents: Iterable[str]) -> None:
        parent = next(iter(parents), None) or _root_of(claim, roots)
        (below[parent] if parent else top).append(claim)

    for owner, claim in plan.claims.items():
        within = plan.parents[owner]
        place(claim, [within] if within in known else [])
    for owner, claim in plan.retired.items():
        place(claim, (key for key in above(owner) if key in plan.claims or key in plan.retired))
    for root in plan.roots:
        for block, why in root.reserved:
            if holds(block_of(root.block), block_of(block)):
                below[root.name].append(Claim(why, block, Source.RESERVED))

    def node(claim: Claim) -> Node:
        inside = sorted(below.get(claim.owner, ()), key=lambda one: block_of(one.block))
        if claim.source is Source.RESERVED or (not inside and claim.source is not Source.ROOT):
            return Node(claim.owner, claim.block, claim.source, claim.block.num_addresses, None)
        space = FreeSpace(block_of(claim.block))
        for child in inside:
            space.take(block_of(child.block))
        children = tuple(node(child) for child in inside)
        used = claim.block.num_addresses - space.count()
        return Node(claim.owner, claim.block, claim.source, used, space.largest(), children)

    return tuple(node(claim) for claim in sorted(top, key=lambda one: block_of(one.block)))


def _root_of(claim: Claim, roots: Iterable[Claim]) -> str | None:
    return next((root.owner for root in roots if holds(block_of(root.block), block_of(claim.block))), None)
