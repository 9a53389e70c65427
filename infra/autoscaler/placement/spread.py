"""Which pods may run together: spreads, affinities and anti-affinities, for many equal pods at a time.

This follows the scheduler's plugins (``podtopologyspread``, ``interpodaffinity``): a spread considers the
nodes that the pod's selectors match, whatever their taints, unless its policies define otherwise;
anti-affinity applies in both directions; a pod whose affinity selects itself may be the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from infra.autoscaler.observed.node_affinity import HOSTNAME
from infra.autoscaler.placement.demand import Even, Kind
from infra.autoscaler.placement.node_matrix import Flags, Ints, NodeMatrix

Universe: TypeAlias = Callable[[Even], Flags]
"""A spread → the rows over which it is counted."""


@dataclass(frozen=True, slots=True)
class Counting:
    """A limit on the number of pods per domain."""

    topology: str
    even: Even | None
    chosen: int


def by_domain(matrix: NodeMatrix, key: str, counts: Ints) -> Ints:
    """The sum of counts per domain."""
    domain = matrix.domain(key)
    known = domain >= 0
    size = matrix.values(key)
    return np.bincount(domain[known], weights=counts[: matrix.n][known], minlength=size).astype(np.int64)


def counting(kind: Kind) -> list[Counting]:
    """The limits of a kind per domain of several nodes."""
    found = [
        Counting(each.topology, each, each.chosen)
        for each in kind.even
        if each.topology != HOSTNAME and each.own
    ]
    found += [
        Counting(each.topology, None, each.chosen)
        for each in kind.apart
        if each.topology != HOSTNAME and each.own
    ]
    return found


def blocked(matrix: NodeMatrix, kind: Kind, key: str) -> Flags:
    """Domains of a label with pods that repel it, or that it repels."""
    found = np.zeros(matrix.values(key), np.bool_)
    for each in kind.apart:
        if each.topology == key:
            found |= by_domain(matrix, key, matrix.counts[each.chosen]) > 0
    for term in kind.barred:
        if matrix.demand.terms[term][0] == key:
            found |= by_domain(matrix, key, matrix.owners[term]) > 0
    return found


def uneven(matrix: NodeMatrix, even: Even, universe: Universe, extra: Ints | None) -> Flags:
    """Domains that are closed by a spread which does not count the pod itself."""
    here = universe(even)
    counts = by_domain(matrix, even.topology, np.where(here, matrix.counts[even.chosen][: matrix.n], 0))
    places = _places(matrix, even.topology, here, extra)
    least = counts[places].min() if places.any() and places.sum() >= even.least else 0
    return (counts - least > even.skew) | ~places


def _places(matrix: NodeMatrix, key: str, universe: Flags, extra: Ints | None) -> Flags:
    domain = matrix.domain(key)
    found = np.zeros(matrix.values(key), np.bool_)
    here = domain[universe]
    found[here[here >= 0]] = True
    if extra is not None:
        found[extra[extra >= 0]] = True
    return found


def keys(kind: Kind, matrix: NodeMatrix) -> list[str]:
    """Labels with domains of several nodes that matter to it, without duplicates."""
    found = [*kind.topologies]
    found += [matrix.demand.terms[term][0] for term in kind.barred]
    return sorted({key for key in found if key != HOSTNAME})


def caps(
    matrix: NodeMatrix,
    kind: Kind,
    rows: Ints,
    room: Ints,
    n: int,
    universe: Universe,
    extra: Callable[[str], Ints] | None,
) -> Ints:
    """How many pods each row may get, at most its room: by all limits except those of `counting`."""
    found = room.copy()
    for near in kind.apart:
        if near.topology == HOSTNAME:
            found[matrix.counts[near.chosen, rows] > 0] = 0
            if near.own:
                np.minimum(found, 1, out=found)
    for term in kind.barred:
        if matrix.demand.terms[term][0] == HOSTNAME:
            found[matrix.owners[term, rows] > 0] = 0
    for even in kind.even:
        if even.topology == HOSTNAME:
            found = _evenly(matrix, even, rows, found, universe)
    for key in keys(kind, matrix):
        domain = matrix.domain(key)[rows]
        shut = np.append(blocked(matrix, kind, key), False)  # -1: nodes without the label are in no domain
        found[shut[domain]] = 0
        for even in kind.even:
            if even.topology == key:
                found[domain < 0] = 0
                if not even.own:
                    closed = np.append(uneven(matrix, even, universe, extra and extra(key)), True)
                    found[closed[domain]] = 0
    for near in kind.together:
        found = _beside(matrix, near.topology, near.chosen, near.own, rows, found, n, extra)
    return found


def _evenly(matrix: NodeMatrix, even: Even, rows: Ints, room: Ints, universe: Universe) -> Ints:
    counts = matrix.counts[even.chosen][: matrix.n]
    among = universe(even)
    least = int(counts[among].min()) if among.any() and among.sum() >= even.least else 0
    left = even.skew + least - counts[rows]
    if even.own:
        least_of: Ints = np.minimum(room, np.maximum(left, 0))
        return least_of
    return np.where(left >= 0, room, 0)


def _beside(
    matrix: NodeMatrix,
    key: str,
    chosen: int,
    own: bool,
    rows: Ints,
    room: Ints,
    n: int,
    extra: Callable[[str], Ints] | None,
) -> Ints:
    """Only domains with such pods; if there are none yet, one domain for all, the one with most room."""
    counts = matrix.counts[chosen][: matrix.n]
    if key == HOSTNAME:
        if counts.any():
            return np.where(counts[rows] > 0, room, 0)
        if not own or not len(rows):
            return np.zeros_like(room)
        best = int(np.minimum(room, n).argmax())
        return np.where(np.arange(len(rows)) == best, room, 0)
    domain = matrix.domain(key)[rows]
    inside = np.append(by_domain(matrix, key, counts), 0)
    if inside.any():
        return np.where(inside[domain] > 0, room, 0)
    if not own or not len(rows) or not (domain >= 0).any():
        return np.zeros_like(room)
    known = domain >= 0
    total = np.bincount(domain[known], weights=np.minimum(room[known], n), minlength=matrix.values(key))
    worth = np.minimum(total, n)
    if extra is not None:
        grows = np.zeros_like(worth)
        places = extra(key)
        grows[places[places >= 0]] = 1
        # A domain that can be extended has room for all of them.
        worth = np.where((worth > 0) & (grows > 0), n + worth, worth)
    return np.where(domain == int(worth.argmax()), room, 0)


def shares(
    matrix: NodeMatrix, limit: Counting, capacity: Ints, n: int, universe: Universe, extra: Ints | None
) -> Ints:
    """How many of ``n`` pods go to each domain, at most its capacity: the emptiest first.

    A spread then holds at each step, in whatever order the pods are bound.
    """
    counts = matrix.counts[limit.chosen][: matrix.n]
    if limit.even is None:
        here = by_domain(matrix, limit.topology, counts)
        return water_fill(here, np.where(here == 0, np.minimum(capacity, 1), 0), n)
    among = universe(limit.even)
    here = by_domain(matrix, limit.topology, np.where(among, counts, 0))
    places = _places(matrix, limit.topology, among, extra)
    if not places.any():
        return np.zeros_like(capacity)
    most = np.where(places, capacity, 0)
    lowest = int((here + most)[places].min()) if places.sum() >= limit.even.least else 0
    allowed = np.clip(lowest + limit.even.skew - here, 0, most)
    return water_fill(here, allowed, n)


def water_fill(levels: Ints, room: Ints, n: int) -> Ints:
    """Distribute ``n`` over bins with these levels and this room: the lowest first."""
    if int(room.sum()) <= n:
        return room
    low, high = int(levels.min()), int(levels.max()) + n + 1
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.clip(middle - levels, 0, room).sum()) <= n:
            low = middle
        else:
            high = middle - 1
    found = np.clip(low - levels, 0, room)
    for place in np.nonzero((levels + found == low) & (found < room))[0][: n - int(found.sum())]:
        found[place] += 1
    return found


def row_share(order: Ints, domain: Ints, room: Ints, share: Ints) -> Ints:
    """Distribute each domain's share over its rows, in this order."""
    taken = np.zeros_like(room)
    for place in np.nonzero(share)[0]:
        rows = order[domain[order] == place]
        taken[rows] = first(room[rows], int(share[place]))
    return taken


def first(room: Ints, n: int) -> Ints:
    """Fill ``n`` into these rows, one after the other."""
    before = np.cumsum(room) - room
    taken: Ints = np.clip(n - before, 0, room)
    return taken
