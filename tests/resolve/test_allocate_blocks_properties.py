"""What the address plan promises for any spec: no overlap, no surprise, no move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.resolve.allocate_blocks import ANYWHERE, Plan, Request, Root, allocate
from infra.resolve.blocks import FreeSpace, block_of, network_of
from infra.resolve.claims import DoesNotFit, HeldMismatch, Overlap, above
from infra.resolve.lockfile import Lock, dump, parse
from infra.resolve.usage import Node, tree

AWS_KEEPS = tuple(
    (IPv4Network(block), "kept by AWS")
    for block in (*(f"169.254.{number}.0/30" for number in range(6)), "169.254.169.252/30")
)
ROOTS = (
    Root("supernet", IPv4Network("10.0.0.0/16"), ((IPv4Network("10.0.17.0/24"), "the Docker bridge"),)),
    Root("links", IPv4Network("169.254.0.0/16"), AWS_KEEPS),
)
ROOMY = (replace(ROOTS[0], block=IPv4Network("10.0.0.0/12")), ROOTS[1])

PREFIXES = st.integers(18, 27)
NAMES = st.sampled_from([f"{letter}{number}" for letter in "abc" for number in range(4)])


@st.composite
def any_block(draw: st.DrawFn, around: str = "10.0.0.0/16") -> IPv4Network:
    """A block in or near the supernet."""
    outer = IPv4Network(around)
    prefix = draw(st.integers(outer.prefixlen - 1, 28))
    start = int(outer.network_address) + draw(st.integers(0, 2**17 - 1))
    return IPv4Network((start >> (32 - prefix) << (32 - prefix), prefix))


@st.composite
def site(draw: st.DrawFn, name: str, *, stated: bool) -> list[Request]:
    """A site, with subnets and a tunnel link; with stated blocks here and there, sound or not."""
    owner = f"sites/{name}"
    prefix = draw(PREFIXES)
    block = draw(st.none() | any_block()) if stated else None
    within = ANYWHERE if block is not None and draw(st.booleans()) else "supernet"
    requests = [Request(owner, within, prefix=prefix, block=block, path=f"sites.{name}")]
    for zone in draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4)):
        child = draw(st.none() | any_block()) if stated and draw(st.integers(0, 4)) == 0 else None
        size = prefix + draw(st.integers(1, 4))
        requests.append(Request(f"{owner}/subnets/{zone}", owner, prefix=size, block=child))
    if draw(st.booleans()):
        requests.append(Request(f"links/{name}/1", "links", prefix=30))
    return requests


@st.composite
def specs(draw: st.DrawFn, *, stated: bool = True) -> list[Request]:
    """All requests of a spec; without stated blocks all that can go wrong is that there is no room."""
    names = draw(st.lists(NAMES, unique=True, max_size=6))
    return [request for name in names for request in draw(site(name, stated=stated))]


@st.composite
def lived(draw: st.DrawFn) -> tuple[list[Request], dict[str, IPv4Network]]:
    """A spec and the lock of an earlier one, as a careful person leaves them: nothing is resized, and some
    blocks, of sites that are new, are stated."""
    lock = allocate(ROOMY, draw(specs(stated=False)), {}).lock
    requests = []
    for request in draw(specs(stated=False)):
        held, block = lock.get(request.owner), None
        if held is None and request.within == "supernet" and draw(st.booleans()):
            address = (10 << 24) + (draw(st.integers(0, 4095)) << 8)
            block = IPv4Network((address, request.prefix or 0), strict=False)
        size = request.prefix if held is None else held.prefixlen
        within = ANYWHERE if block and draw(st.booleans()) else request.within
        requests.append(replace(request, prefix=size, block=block, within=within))
    return requests, dict(lock)


OWNERS = st.builds(lambda name, tail: f"sites/{name}{tail}", NAMES, st.sampled_from(["", "/subnets/a"]))
LOCKS = st.dictionaries(OWNERS, any_block(), max_size=4)


def assert_sound(plan: Plan) -> None:
    """By brute force and with Python's own networks: containment, and no overlap save with a parent."""
    roots = {root.name: root.block for root in plan.roots}
    for owner, block in plan.blocks.items():
        parent = plan.parents[owner]
        if parent != ANYWHERE:
            assert block.subnet_of(roots[parent] if parent in roots else plan.blocks[parent]), owner
        for root in plan.roots:
            for kept, _ in root.reserved:
                assert not block.overlaps(kept), owner
    siblings: dict[str, list[IPv4Network]] = {}
    for owner, block in plan.blocks.items():
        parent = plan.parents[owner]
        siblings.setdefault("" if parent in roots else parent, []).append(block)
    for blocks in siblings.values():
        assert_apart(blocks)


def assert_apart(blocks: Iterable[IPv4Network]) -> None:
    for left, right in pairwise(sorted(blocks)):
        assert not left.overlaps(right), (left, right)


@settings(deadline=None)
@given(lived())
def test_a_plan_without_failures_is_complete_and_has_no_overlap(
    environment: tuple[list[Request], dict[str, IPv4Network]],
) -> None:
    requests, held = environment
    plan = allocate(ROOMY, requests, held)
    if any(isinstance(failure, Overlap | DoesNotFit) for failure in plan.failures):
        return  # two stated blocks met; the other tests are about that
    assert plan.failures == ()
    assert set(plan.blocks) == {request.owner for request in requests}
    assert_sound(plan)
    for request in requests:
        block = plan.blocks[request.owner]
        assert block == request.block or (request.block is None and block.prefixlen == request.prefix)
        assert held.get(request.owner, block) == block
    for owner, block in held.items():
        assert plan.lock[owner] == block
        # Nobody got what is held for one who may come back, save what lies around it.
        for other, live in plan.blocks.items():
            if owner not in plan.blocks and live.overlaps(block):
                assert owner.startswith(f"{other}/")


@settings(deadline=None)
@given(specs(), LOCKS)
def test_an_overlap_never_goes_unseen(requests: list[Request], held: dict[str, IPv4Network]) -> None:
    """Whatever the brute force finds among stated blocks has a failure that names one of the two, or a
    block within."""
    failures = allocate(ROOTS, requests, held).failures
    named = {one.owner for one in failures}
    named |= {one.b.owner for one in failures if isinstance(one, Overlap)}
    named |= {parent for owner in named for parent in above(owner)}
    stated = {request.owner: request for request in requests if request.block is not None}
    for a in stated.values():
        for b in stated.values():
            assert a.block is not None
            assert b.block is not None
            if a.owner < b.owner and a.block.overlaps(b.block) and a.owner not in (b.within,):
                lines = {part for one in (a, b) for part in (one.owner, one.within)}
                assert lines & named, (a, b)


@settings(deadline=None)
@given(specs(), LOCKS, st.randoms(use_true_random=False))
def test_the_order_of_requests_does_not_matter(
    requests: list[Request], held: dict[str, IPv4Network], random: Random
) -> None:
    shuffled = list(requests)
    random.shuffle(shuffled)
    backwards = dict(reversed(held.items()))
    assert allocate(reversed(ROOTS), shuffled, backwards).claims == allocate(ROOTS, requests, held).claims
    assert set(allocate(ROOTS, shuffled, backwards).failures) == set(allocate(ROOTS, requests, held).failures)


@settings(deadline=None)
@given(st.lists(specs(stated=False), min_size=2, max_size=5))
def test_no_edit_ever_moves_a_block(edits: list[list[Request]]) -> None:
    """One spec after another, each with the lock of the one before: add, remove, reorder, bring back."""
    lock: dict[str, IPv4Network] = {}
    ever: dict[str, IPv4Network] = {}
    for requests in edits:
        kept = [request for request in requests if ever.get(request.owner, request) is request]
        again = [
            Request(request.owner, request.within, prefix=ever[request.owner].prefixlen)
            for request in requests
            if request.owner in ever
        ]
        plan = allocate(ROOTS, [*kept, *again], lock)
        for owner, block in plan.blocks.items():
            assert ever.setdefault(owner, block) == block
        assert all(isinstance(failure, DoesNotFit) for failure in plan.failures)
        assert_apart(block for owner, block in plan.lock.items() if owner.count("/") == 1)
        lock = dict(parse(dump(Lock(blocks=plan.lock)), "lock").blocks)
        assert lock == ever


@settings(deadline=None)
@given(specs(stated=False))
def test_a_second_plan_from_the_lock_is_the_first(requests: list[Request]) -> None:
    first = allocate(ROOTS, requests, {})
    second = allocate(ROOTS, requests, first.lock)
    assert (second.blocks, second.lock) == (first.blocks, first.lock)


@settings(deadline=None)
@given(st.lists(PREFIXES, max_size=40))
def test_what_fits_by_count_fits(prefixes: list[int]) -> None:
    """Blocks are powers of two, largest first: a fresh parent is full only when every address is given."""
    root = Root("supernet", IPv4Network("10.0.0.0/18"))
    requests = [Request(f"sites/{number}", "supernet", prefix=size) for number, size in enumerate(prefixes)]
    plan = allocate([root], requests, {})
    fits = sum(2 ** (32 - size) for size in prefixes) <= root.block.num_addresses
    assert (not plan.failures) == fits
    for failure in plan.failures:
        assert isinstance(failure, DoesNotFit)
        free = 0 if failure.largest is None else 2 ** (32 - failure.largest)
        assert failure.missing == 2 ** (32 - failure.prefix) - free > 0


@settings(deadline=None)
@given(specs(), LOCKS)
def test_a_stated_block_wins_over_the_held_one_and_says_so(
    requests: list[Request], held: dict[str, IPv4Network]
) -> None:
    plan = allocate(ROOTS, requests, held)
    told = {failure.owner for failure in plan.failures if isinstance(failure, HeldMismatch)}
    for request in requests:
        if request.block is not None:
            assert plan.blocks[request.owner] == request.block
            assert (request.owner in told) == (held.get(request.owner, request.block) != request.block)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), any_block("10.0.0.0/20")), max_size=30))
def test_free_space_is_what_was_not_taken(steps: list[tuple[bool, IPv4Network]]) -> None:
    outer = IPv4Network("10.0.0.0/20")
    space = FreeSpace(block_of(outer))
    taken: list[IPv4Network] = []
    for given_block, block in steps:
        if given_block:
            if block.subnet_of(outer) and not any(block.overlaps(other) for other in taken):
                space.take(block_of(block))
                taken.append(block)
        else:
            found = space.allocate(block.prefixlen)
            candidates = outer.subnets(new_prefix=block.prefixlen) if block.prefixlen >= 20 else ()
            free = [one for one in candidates if not any(one.overlaps(other) for other in taken)]
            assert (found is None) == (not free)
            if found is not None:
                assert network_of(found) in free
                taken.append(network_of(found))
    assert space.count() == outer.num_addresses - sum(block.num_addresses for block in taken)


@settings(deadline=None)
@given(specs(), LOCKS)
def test_the_tree_shows_each_owner_once_and_counts_what_is_used(
    requests: list[Request], held: dict[str, IPv4Network]
) -> None:
    plan = allocate(ROOTS, requests, held)
    shown: list[str] = []

    def visit(node: Node) -> None:
        shown.append(node.owner)
        assert 0 <= node.used <= node.size
        if node.children and not plan.failures and not plan.retired:
            assert node.used == sum(child.size for child in node.children)
        for child in node.children:
            visit(child)

    for node in tree(plan):
        visit(node)
    reserved = [why for root in ROOTS for _, why in root.reserved]
    assert sorted(shown) == sorted([*plan.claims, *plan.retired, "supernet", "links", *reserved])
