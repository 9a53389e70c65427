"""Address planning: requests and the lock file give one permanent block each.

The rules, in this order:

1. An explicit block is used as it is; it must be inside its parent and overlap no other.
2. A block in the lock file stays, even if its owner left the spec: an owner that returns gets it back.
3. The others are allocated: parent by parent, larger blocks first, then by owner; each gets the lowest
   place in the smallest free block that holds it. The order of requests does not matter.

So with the lock of an earlier plan, adding, removing or moving anything does not change another block.
Everything here is pure; all problems are returned together in ``Plan.failures``.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from infra.resolve.blocks import Block, FreeSpace, block_of, holds, network_of
from infra.resolve.claims import (
    ANYWHERE,
    Claim,
    DoesNotFit,
    Failure,
    HeldMismatch,
    Outside,
    Overlap,
    Request,
    Root,
    Source,
    above,
    lineage,
)
from infra.resolve.overlaps import Survey, survey

__all__ = ["ANYWHERE", "Plan", "Request", "Root", "allocate"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Every block, decided. Use only a plan without failures."""

    roots: tuple[Root, ...]
    claims: Mapping[str, Claim]
    """Owner → its block and where it comes from, sorted by owner."""
    parents: Mapping[str, str]
    """Owner → the owner or root that contains it; ``ANYWHERE`` for blocks outside of all roots."""
    retired: Mapping[str, Claim]
    """Blocks held for owners that are no longer in the spec."""
    failures: tuple[Failure, ...]
    lock: Mapping[str, IPv4Network]
    """The contents of the new lock file, sorted by owner."""

    @property
    def blocks(self) -> dict[str, IPv4Network]:
        """Owner → block."""
        return {owner: claim.block for owner, claim in self.claims.items()}


def allocate(roots: Iterable[Root], requests: Iterable[Request], held: Mapping[str, IPv4Network]) -> Plan:
    """Allocate a block for each request.

    ``held``: owner → block from the lock file, empty for a new environment.

    User errors are not raised: see ``Plan.failures``. Raises ``ValueError`` for programming errors: two
    requests with one key, a parent that does not exist, a key that does not start with its parent's.
    """
    return _Planner(tuple(roots), tuple(requests), held).plan()


@dataclass(slots=True)
class _Planner:
    roots: tuple[Root, ...]
    requests: tuple[Request, ...]
    held: Mapping[str, IPv4Network]
    claims: dict[str, Claim] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    root_names: tuple[str, ...] = ()
    wanted: dict[str, Request] = field(default_factory=dict)

    def plan(self) -> Plan:
        self.root_names = tuple(root.name for root in self.roots)
        self.wanted = {request.owner: request for request in self.requests}
        self._insist()
        root_claims = {root.name: Claim(root.name, root.block, Source.ROOT, root.path) for root in self.roots}
        retired = {
            owner: Claim(owner, block, Source.RETIRED)
            for owner, block in self.held.items()
            if owner not in self.wanted
        }
        self._settle()
        found = survey(
            [*root_claims.values(), *self._reserved(), *self.claims.values(), *retired.values()],
            self._ancestors,
        )
        self.failures += found.overlaps
        self.failures += self._avoided()
        self._descend(root_claims, found)
        kept = {owner: claim for owner, claim in self.claims.items() if self.wanted[owner].keep}
        return Plan(
            roots=self.roots,
            claims=_by_owner(self.claims),
            parents={owner: self.wanted[owner].within for owner in self.claims},
            retired=_by_owner(retired),
            failures=tuple(sorted(self.failures, key=lambda one: (lineage(one.owner), str(one)))),
            lock={owner: claim.block for owner, claim in _by_owner(retired | kept).items()},
        )

    def _insist(self) -> None:
        """Raise ``ValueError`` for programming errors in the requests."""
        names = Counter([*self.root_names, *(request.owner for request in self.requests)])
        if len(names) < names.total():
            raise ValueError(f"two requests or roots have one name: {names.most_common(1)[0][0]}")
        for request in self.requests:
            if request.within in self.wanted:
                if not request.owner.startswith(f"{request.within}/"):
                    raise ValueError(f"{request.owner}: its key is not under its parent's, {request.within}")
            elif request.within != ANYWHERE and request.within not in self.root_names:
                raise ValueError(f"{request.owner}: no such parent: {request.within}")
            elif request.within == ANYWHERE and request.block is None:
                raise ValueError(f"{request.owner}: only an explicit block may be outside the roots")
            if request.block is None and request.prefix is None:
                raise ValueError(f"{request.owner}: neither a block nor a size")

    def _settle(self) -> None:
        """Record the claims that need no allocation: stated in the spec, or held by the lock."""
        for request in self.requests:
            held = self.held.get(request.owner) if request.keep else None
            if request.block is not None:
                self.claims[request.owner] = Claim(request.owner, request.block, Source.SPEC, request.path)
                if held is not None and held != request.block:
                    self.failures.append(HeldMismatch(request.owner, request.path, held, request.block))
            elif held is not None:
                self.claims[request.owner] = Claim(request.owner, held, Source.LOCK, request.path)
                if request.prefix is not None and held.prefixlen != request.prefix:
                    self.failures.append(HeldMismatch(request.owner, request.path, held, request.prefix))

    def _reserved(self) -> Iterable[Claim]:
        """The reserved ranges of the roots, clipped to the root."""
        for root in self.roots:
            for block, why in root.reserved:
                if block.overlaps(root.block):
                    inner = block if block.prefixlen > root.block.prefixlen else root.block
                    yield Claim(why, inner, Source.RESERVED, root.path)

    def _avoided(self) -> Iterable[Overlap]:
        """Stated blocks in ranges that their own request avoids. Blocks already in the lock are accepted."""
        for request in self.requests:
            if request.block is not None and request.owner not in self.held:
                for block, why in request.avoid:
                    if block.overlaps(request.block):
                        yield Overlap(self.claims[request.owner], Claim(why, block, Source.RESERVED))

    def _ancestors(self, claim: Claim) -> tuple[str, ...]:
        if claim.source is Source.RETIRED:
            return tuple(above(claim.owner))
        chain = []
        request = self.wanted.get(claim.owner)
        while request is not None:
            chain.append(request.within)
            request = self.wanted.get(request.within)
        return tuple(chain)

    def _descend(self, root_claims: Mapping[str, Claim], found: Survey) -> None:
        """From parents to children: check the blocks that are settled, allocate the others."""
        children: defaultdict[str, list[Request]] = defaultdict(list)
        for request in self.requests:
            children[request.within].append(request)
        moved = {failure.owner for failure in self.failures if isinstance(failure, HeldMismatch)}
        queue = deque([ANYWHERE, *self.root_names])
        while queue:
            name = queue.popleft()
            parent = root_claims.get(name) or self.claims.get(name)
            open_requests: list[Request] = []
            outside: list[Outside] = []
            for request in children.get(name, ()):
                queue.append(request.owner)
                claim = self.claims.get(request.owner)
                if claim is None:
                    open_requests.append(request)
                elif parent is not None and not holds(block_of(parent.block), block_of(claim.block)):
                    outside.append(Outside(claim, parent))
            # Blocks held in a parent that has moved lie outside of it; the move itself was already reported.
            self.failures += [one for one in outside if name not in moved or one.claim.source is Source.SPEC]
            # The failure of the parent was already reported; its children's failures would only repeat it.
            if parent is not None and open_requests:
                self._allocate(parent, open_requests, found.inside.get(name, []))

    def _allocate(self, parent: Claim, requests: list[Request], inside: list[Claim]) -> None:
        """Allocate the children of one parent; ``inside``: claims that already take space from it."""
        space = _space(parent, inside)
        without_retired: FreeSpace | None = None
        for request in sorted(requests, key=lambda one: (one.prefix or 0, lineage(one.owner))):
            assert request.prefix is not None
            avoid = [block_of(block) for block, _ in request.avoid]
            largest = space.largest()
            block = space.allocate(request.prefix, avoid)
            if block is not None:
                network = network_of(block)
                self.claims[request.owner] = Claim(request.owner, network, Source.NEW, request.path)
                if without_retired is not None:
                    without_retired.take(block)
                continue
            if without_retired is None:
                new = [self.claims[one.owner] for one in requests if one.owner in self.claims]
                live = [claim for claim in inside if claim.source is not Source.RETIRED]
                without_retired = _space(parent, [*live, *new])
            room = without_retired.allocate(request.prefix, avoid)
            self.failures.append(
                DoesNotFit(
                    request.owner, request.path, request.prefix, parent, largest, _in_the_way(room, inside)
                )
            )


def _by_owner(claims: Mapping[str, Claim]) -> dict[str, Claim]:
    return {owner: claims[owner] for owner in sorted(claims, key=lineage)}


def _space(parent: Claim, taken: Iterable[Claim]) -> FreeSpace:
    space = FreeSpace(block_of(parent.block))
    for claim in taken:
        space.take(block_of(claim.block))
    return space


def _in_the_way(room: Block | None, inside: Iterable[Claim]) -> tuple[Claim, ...]:
    if room is None:
        return ()
    return tuple(
        claim
        for claim in inside
        if claim.source is Source.RETIRED
        and (holds(room, block_of(claim.block)) or holds(block_of(claim.block), room))
    )
