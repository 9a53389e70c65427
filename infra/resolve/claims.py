"""Requests for addresses, and the errors of the address plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network
from typing import TypeAlias

from infra.resolve.blocks import in_words, size

Reserved: TypeAlias = tuple[IPv4Network, str]
"""A range that is never allocated, and the reason."""

ANYWHERE = ""
"""``Request.within`` of a stated block that may lie outside of every root, such as an existing LAN."""


@dataclass(frozen=True, slots=True)
class Root:
    """A range that blocks are allocated from: the supernet, or 169.254.0.0/16 for tunnels."""

    name: str
    block: IPv4Network
    reserved: tuple[Reserved, ...] = ()
    """Parts of it that are never allocated and must not be stated."""
    path: str = ""
    """The path in the spec, for messages."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one block.

    ``owner`` is its key, in the lock file too: ``sites/us-west-2/subnets/private/us-west-2a``. The key of a
    request within another starts with that one's key and a slash.
    """

    owner: str
    within: str
    """The parent's owner key, a root's name, or ``ANYWHERE``."""
    prefix: int | None = None
    """The prefix length to allocate; None if a block is stated."""
    block: IPv4Network | None = None
    """The block stated by the user, or None."""
    path: str = ""
    """The path in the spec, for messages."""
    avoid: tuple[Reserved, ...] = ()
    """Ranges that this block must not overlap: common home networks, for laptops."""
    keep: bool = True
    """Whether the block is recorded in the lock file. False for a stated block that Causeway does not
    manage: a LAN."""


class Source(StrEnum):
    """Where a block comes from."""

    SPEC = "spec"
    """Stated by the user."""
    LOCK = "lock"
    """Held by the lock file."""
    NEW = "new"
    """Allocated in this run."""
    RETIRED = "retired"
    """Held by the lock file for an owner that is no longer in the spec."""
    ROOT = "root"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class Claim:
    """A block and its owner."""

    owner: str
    """The owner's key, or the reason why the range is reserved."""
    block: IPv4Network
    source: Source
    path: str = ""

    def __str__(self) -> str:
        match self.source:
            case Source.RESERVED:
                return f"{self.block}, which is reserved: {self.owner}"
            case Source.RETIRED:
                return f"{self.owner} ({self.block}), gone from the spec but held by the lock file"
            case _:
                return f"{self.owner} ({self.block})"


RELEASE = "if nothing of it is live any more, take its lines out of the lock file"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two claims that overlap. ``a`` is the one to fix."""

    a: Claim
    b: Claim

    @property
    def owner(self) -> str:
        return self.a.owner

    @property
    def path(self) -> str:
        return self.a.path

    @property
    def hint(self) -> str:
        return RELEASE if self.b.source is Source.RETIRED else ""

    def __str__(self) -> str:
        return f"{self.a} overlaps {self.b}"


@dataclass(frozen=True, slots=True)
class Outside:
    """A block that does not lie within its parent's."""

    claim: Claim
    parent: Claim

    @property
    def owner(self) -> str:
        return self.claim.owner

    @property
    def path(self) -> str:
        return self.claim.path

    @property
    def hint(self) -> str:
        if self.claim.source is Source.LOCK:
            return f"a live block can't be moved; give {self.parent.owner} a block that holds it"
        if self.parent.source is Source.NEW:
            return f"state the block of {self.parent.owner} too"
        return ""

    def __str__(self) -> str:
        held = ", held by the lock file," if self.claim.source is Source.LOCK else ""
        return f"{self.claim}{held} lies outside {self.parent}"


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """A block for which its parent has no space."""

    owner: str
    path: str
    prefix: int
    parent: Claim
    largest: int | None
    """Prefix length of the largest free block at the time of the allocation; ``None`` if nothing was free."""
    releasable: tuple[Claim, ...] = ()
    """Retired blocks that use the space: if they are released, the block fits."""

    @property
    def missing(self) -> int:
        """How many addresses the largest free block lacks.

        0 if a block is large enough but overlaps a range that the request avoids.
        """
        return max(0, size(self.prefix) - (0 if self.largest is None else size(self.largest)))

    @property
    def hint(self) -> str:
        if not self.releasable:
            return ""
        names = ", ".join(f"{claim.owner} ({claim.block})" for claim in self.releasable)
        return f"it fits without what is gone from the spec but held by the lock file: {names}; {RELEASE}"

    def __str__(self) -> str:
        if self.prefix < self.parent.block.prefixlen:
            free = f"which is only {in_words(self.parent.block.prefixlen)}"
        elif self.largest is None:
            free = "where nothing is free"
        elif not self.missing:
            free = f"where {in_words(self.largest)} is free, but in ranges that it must avoid"
        else:
            free = f"where the largest free block is {in_words(self.largest)}"
        addresses = "address" if self.missing == 1 else "addresses"
        short = f": {self.missing:,} {addresses} too few" if self.missing else ""
        return f"{self.owner} needs {in_words(self.prefix)} in {self.parent}, {free}{short}"


@dataclass(frozen=True, slots=True)
class HeldMismatch:
    """The spec states another block or size than the lock file holds."""

    owner: str
    path: str
    held: IPv4Network
    wanted: IPv4Network | int
    """The stated block, or the prefix length."""

    @property
    def hint(self) -> str:
        return f"go back to {self.held}, or, {RELEASE}"

    def __str__(self) -> str:
        if isinstance(self.wanted, int):
            return (
                f"a live block can't be resized: the lock file holds {self.held} for {self.owner}, "
                f"{in_words(self.held.prefixlen)}; the spec wants {in_words(self.wanted)}"
            )
        return (
            f"a live block can't be moved: the lock file holds {self.held} for {self.owner}; "
            f"the spec says {self.wanted}"
        )


Failure: TypeAlias = Overlap | Outside | DoesNotFit | HeldMismatch
"""Each has ``owner``, ``path`` (in the spec, may be empty), ``hint`` (may be empty), and its message."""


def lineage(owner: str) -> tuple[str, ...]:
    """The parts of a key, as a sort key: a parent sorts directly before its children."""
    return tuple(owner.split("/"))


def above(owner: str) -> Iterator[str]:
    """Yield the parents' keys, nearest first: ``a/b/c`` → ``a/b``, ``a``."""
    while "/" in owner:
        owner = owner.rpartition("/")[0]
        yield owner
