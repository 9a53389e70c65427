"""In which zones machines come up, and how equal pods are shared out between places."""

from __future__ import annotations

from itertools import islice
from math import inf

import numpy as np
from autoscaler.make import NOW, changed, cpu_group, group, pods, selector, snapshot, state
from autoscaler.make import config as configured
from hypothesis import given
from hypothesis import strategies as st

from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.cluster_state import GroupView
from infra.autoscaler.observed.snapshot import Spread
from infra.autoscaler.placement import scale_up
from infra.autoscaler.placement.spread import water_fill
from infra.autoscaler.placement.zones import Zones

ZONE = "topology.kubernetes.io/zone"
A, B, C = "us-west-2a", "us-west-2b", "us-west-2c"


def _view(zones: tuple[str, ...] = (A, B, C), shut: frozenset[str] = frozenset()) -> GroupView:
    of = group(zones=zones)
    seen = snapshot(groups=[state(of)])
    built = state_builder.build(seen, Memory(), configured(of), NOW).groups[of.name]
    bar = Backoff("capacity", "none", NOW, NOW, NOW + 300, 1)
    return GroupView(built.group, built.state, built.template, 0, 0, closed_zones=dict.fromkeys(shut, bar))


def test_the_emptiest_zone_is_next() -> None:
    zones = Zones(_view(), [(A, 2), (B, 1)])
    assert [*islice(zones.ahead(), 5)] == [C, B, C, A, B]
    assert [zones.take() for _ in range(3)] == [C, B, C]
    zones.back(C)
    assert zones.take() == C


def test_zones_without_capacity_are_not_next() -> None:
    zones = Zones(_view(shut=frozenset({A})), [])
    assert [*islice(zones.ahead(), 3)] == [B, C, B]
    assert zones.possible() == {B, C}


def test_what_is_known_comes_first() -> None:
    zones = Zones(_view(), [], known=(C, C))
    assert [zones.take() for _ in range(4)] == [C, C, A, B]


def test_how_many_come_up_elsewhere() -> None:
    zones = Zones(_view(), [])
    assert zones.others(frozenset({B})) == 1
    assert zones.others(frozenset({B}), 3) == 5
    assert zones.others(frozenset({A, B, C}), 9) == 0
    shut = Zones(_view(shut=frozenset({C})), [], known=(A, C))
    assert shut.others(frozenset({C})) == 1
    assert shut.others(frozenset({C}), 2) == 1, "no second one comes up there"
    assert Zones(_view(shut=frozenset({C})), []).others(frozenset({C})) == inf


levels = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6)


@given(levels, st.integers(0, 80))
def test_water_goes_to_the_lowest(vessels: list[tuple[int, int]], n: int) -> None:
    level = np.array([one for one, _ in vessels], np.int64)
    room = np.array([other for _, other in vessels], np.int64)
    poured = water_fill(level, room, n)
    assert poured.sum() == min(n, room.sum())
    assert (poured >= 0).all()
    assert (poured <= room).all()
    top = (level + poured)[poured > 0].max(initial=0)
    # Whoever could take more stands no lower than one below the highest that took some.
    assert ((level + poured)[poured < room] >= top - 1).all()


def test_07_a_zone_that_gives_less_than_its_share_holds_the_others_back() -> None:
    """A spread must hold when the machines are there: no zone may be given more than its rules allow."""
    zones = [cpu_group(pool=name[-1], zones=(name,), max=9) for name in (A, B, C)]
    zones[2] = changed(zones[2], max=1)
    of = configured(*zones)
    spread = (Spread(ZONE, 1, selector(app="db")),)
    seen = snapshot(pods=pods(12, cpu=15_000, labels={"app": "db"}, spread=spread), of=of)
    view = state_builder.build(seen, Memory(), of, NOW)
    assert scale_up.plan(view, seen, Memory(), of, NOW).sizes == {
        zones[0].name: 2,
        zones[1].name: 2,
        zones[2].name: 1,
    }
    away = Memory(backoffs={zones[2].name: Backoff("capacity", "none", NOW, NOW, NOW + 300, 1)})
    view = state_builder.build(seen, away, of, NOW)
    sizes = scale_up.plan(view, seen, away, of, NOW).sizes
    assert sizes == {zones[0].name: 6, zones[1].name: 6}, "no node is there: the zone is no place yet"
