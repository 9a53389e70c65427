"""What holds of every plan, whatever waits: worlds made by chance, the same each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from autoscaler import booting
from autoscaler.make import (
    CPU_TYPE,
    GI,
    GPU_TOLERATION,
    NOW,
    changed,
    config,
    cpu_group,
    gang,
    group,
    instance,
    node,
    pod,
    selector,
    shape,
    snapshot,
    state,
    titans,
)

from infra.autoscaler import decide as deciding
from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import SetDesired, Verdict
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.selectors import matches
from infra.autoscaler.observed.snapshot import Gang, GroupState, Pod, PodTerm, Shape, Snapshot, Spread
from infra.autoscaler.placement import gangs, scale_up
from infra.autoscaler.placement.demand import gather
from infra.autoscaler.placement.node_matrix import NodeMatrix
from infra.autoscaler.placement.scale_up import Growth
from infra.autoscaler.placement.scale_up_plan import Plan
from infra.autoscaler.reporting import sentences

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
APPS = ("a", "b", "c")


def _shape(chance: Random) -> Shape:
    gpus = chance.choice((0, 0, 1, 2, 4, 8))
    more: dict[str, Any] = {}
    place, chosen = chance.choice((ZONE, HOSTNAME)), selector(app=chance.choice(APPS))
    match chance.randint(0, 9):
        case 0:
            more["spread"] = (Spread(place, chance.randint(1, 2), chosen),)
        case 1:
            more["apart"] = (PodTerm(place, chosen, ("user-ada",)),)
        case 2:
            more["together"] = (PodTerm(place, chosen, ("user-ada",)),)
        case 3:
            more["selector"] = ((ZONE, chance.choice(("us-west-2a", "us-west-2b", "us-east-1a"))),)
        case 4:
            more["selector"] = (("causeway.dev/site", chance.choice(("us-west-2", "rack-a"))),)
        case 5:
            more["ports"] = (("TCP", "", chance.choice((80, 81))),)
        case 6:
            more["spread"] = (Spread(ZONE, 1, chosen), Spread(HOSTNAME, 1, selector(app=chance.choice(APPS))))
    return shape(
        gpus=gpus,
        cpu=chance.choice((100, 1500, 7000, 15_000)),
        memory=chance.choice((1, 8, 50)) * GI,
        priority=chance.choice((0, 0, 0, 1000)),
        tolerations=(GPU_TOLERATION,) if gpus or chance.random() < 0.5 else (),
        **more,
    )


def _world(seed: int) -> tuple[Config, Snapshot]:
    """A few groups with limits, machines with work on them, and pods and gangs that wait."""
    chance = Random(seed)
    groups = [
        group(max=chance.randint(0, 6)),
        group("us-east-1", max=chance.randint(0, 6), on_demand_percent=chance.choice((0, 30, 100))),
        booting.one(max=chance.randint(0, 6)),
        cpu_group(max=chance.randint(0, 6)),
        cpu_group(pool="solo", max=chance.randint(0, 6), zones=("us-west-2b",), types=(CPU_TYPE,)),
    ]
    west = {"us-west-2": {"on-demand-p": 96, "on-demand-standard": 48}}
    of = config(
        *groups,
        quotas=chance.choice(({}, west, {"us-east-1": {"spot-p": 40}})),
        max_hourly_cost=chance.choice((None, None, 30.0, 60.0)),
    )
    nodes, states = list(titans(chance.randint(0, 3))), []
    for each in groups:
        up = chance.randint(0, min(2, each.max))
        nodes += [node(each, number) for number in range(1, up + 1)]
        boots = chance.choice((0, 0, 0, 1)) if up < each.max else 0
        comes = chance.choice((0, 0, 0, 2)) if up + boots < each.max - 1 else 0
        instances = [instance(each, number) for number in range(1, up + 1)]
        instances += [
            instance(each, 9, zone=chance.choice(each.zones), lifecycle="Pending", launched=NOW - 60)
        ] * boots
        states.append(state(each, up + boots + comes, instances))
    waiting: list[Pod] = []
    sets: list[Gang] = []
    for number in range(chance.randint(0, 6)):
        like, name, count = _shape(chance), chance.choice(APPS), chance.randint(1, 12)
        key = None
        if chance.random() < 0.25:
            found = gang(f"g{number}", count, like, across=chance.random() < 0.5)
            sets.append(found)
            key = found.key
        waiting += [
            pod(f"p{number}-{n}", like, labels={"app": name}, gang=key, created=NOW - 60 + number)
            for n in range(count)
        ]
    running = [
        pod(f"r{number}", _shape(chance), labels={"app": chance.choice(APPS)}, node=chance.choice(nodes).name)
        for number in range(chance.randint(0, 4) if nodes else 0)
    ]
    return of, snapshot(nodes, [*running, *waiting], states, gangs=sets)


def _grown(seen: Snapshot, growth: Growth) -> Snapshot:
    groups = {
        name: changed(each, desired=growth.sizes.get(name, each.desired))
        for name, each in seen.groups.items()
    }
    grown: Snapshot = changed(seen, groups=groups)
    return grown


def _plan(of: Config, seen: Snapshot) -> Growth:
    return scale_up.plan(state_builder.build(seen, Memory(), of, NOW), seen, Memory(), of, NOW)


seeds = pytest.mark.parametrize("part", range(4))
"""Worlds are tried by the hundred: a part is one of four."""


def _worlds(part: int) -> Iterator[tuple[int, Config, Snapshot]]:
    for seed in range(part, 160, 4):
        yield seed, *_world(seed)


def _within_limits(seed: int, of: Config, seen: Snapshot, growth: Growth) -> None:
    cost = 0.0
    vcpus: Counter[tuple[str, str]] = Counter()
    there: Counter[tuple[str, str]] = Counter()
    for each in of.groups:
        was = seen.groups[each.name].desired
        desired = growth.sizes.get(each.name, was)
        assert was <= desired <= each.max, seed
        assert each.name not in growth.sizes or desired > was, seed
        kind = each.types[0]
        share = each.on_demand_percent / 100
        up = len(seen.groups[each.name].instances)
        cost += up * (kind.on_demand or 0)
        cost += (desired - up) * (share * (kind.on_demand or 0) + (1 - share) * (kind.spot or 0))
        there[each.region, kind.quota_on_demand] += was * kind.vcpus
        vcpus[each.region, kind.quota_on_demand] += was * kind.vcpus
        if each.on_demand_percent == 100:
            vcpus[each.region, kind.quota_on_demand] += (desired - was) * kind.vcpus
        if each.on_demand_percent == 0:
            vcpus[each.region, kind.quota_spot] += (desired - was) * kind.vcpus
    if of.max_hourly_cost is not None and growth.sizes:
        assert cost <= of.max_hourly_cost + 1e-6, seed
    for (region, quota), used in vcpus.items():
        limit = of.quotas.get(region, {}).get(quota)
        assert limit is None or used <= max(limit, there[region, quota]), seed


@seeds
def test_02_no_plan_is_over_a_limit_and_a_second_loop_changes_nothing(part: int) -> None:
    for seed, of, seen in _worlds(part):
        first = _plan(of, seen)
        _within_limits(seed, of, seen, first)
        grown = _grown(seen, first)
        second = _plan(of, grown)
        _within_limits(seed, of, grown, second)
        assert second.sizes == {}, seed
        assert _left(second) <= _left(first), seed


@seeds
def test_the_order_of_pods_and_nodes_is_no_matter(part: int) -> None:
    for seed, of, seen in _worlds(part):
        chance = Random(seed)
        pods_of, nodes = list(seen.pods), list(seen.nodes)
        chance.shuffle(pods_of)
        chance.shuffle(nodes)
        plans = _plan(of, seen), _plan(of, changed(seen, pods=tuple(pods_of), nodes=tuple(nodes)))
        first, second = (
            (each.sizes, sorted((one.count, one.outcome, one.where) for one in each.verdicts))
            for each in plans
        )
        assert first == second, seed


@seeds
def test_full_machines_that_are_left_out_would_take_nothing(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [_plan(of, seen) for _, of, seen in _worlds(part)]
    looked: list[object] = []
    monkeypatch.setattr(NodeMatrix, "skip_full", lambda *asked: looked.append(asked))
    assert plans == [_plan(of, seen) for _, of, seen in _worlds(part)]
    assert looked


def _left(growth: Growth) -> int:
    return sum(each.count for each in growth.verdicts if each.outcome in ("waits", "never"))


@seeds
def test_groups_in_backoff_get_nothing_and_all_limits_hold(part: int) -> None:
    for seed, of, seen in _worlds(part):
        shut = Random(seed).sample([each.name for each in of.groups], 2)
        away = Backoff("capacity", "none", NOW - 5, NOW - 5, NOW + 300, 1)
        memory = Memory(backoffs=dict.fromkeys(shut, away))
        growth = scale_up.plan(state_builder.build(seen, memory, of, NOW), seen, memory, of, NOW)
        assert not growth.sizes.keys() & {*shut}, seed
        _within_limits(seed, of, seen, growth)


@seeds
def test_12_every_pod_has_one_verdict_and_is_told_the_truth(part: int) -> None:
    for seed, of, seen in _worlds(part):
        growth = _plan(of, seen)
        waiting = {each.uid for each in seen.pods if not each.node}
        assert sorted(uid for each in growth.verdicts for uid in each.pods) == sorted(waiting), seed
        for each in growth.verdicts:
            assert each.count == len(each.pods), seed
            assert sentences.verdict(each), seed
            assert (each.reason is None) == (each.outcome in ("fits", "coming", "starting")), seed
            names = [one.group for one in each.obstacles]
            assert len(names) == len(set(names)), seed
            if each.outcome == "starting":
                assert growth.sizes.keys() >= set(each.where), seed


@seeds
@pytest.mark.parametrize("fresh", [False, True])
def test_07_every_place_is_one(part: int, fresh: bool) -> None:
    for seed, of, seen in _worlds(part):
        view = state_builder.build(seen, Memory(), of, NOW)
        demand = gather(view, seen, gangs.items(view, seen, Memory(), of, NOW))
        _check(seed, scale_up._plan(view, seen, demand, of, fresh=fresh), seen, of)


def _check(seed: int, found: Plan, seen: Snapshot, of: Config) -> None:
    """Look at each machine with all that is on it, pod by pod, in the end."""
    matrix = found.packer.matrix
    labels = {row: {**matrix.labels(row), HOSTNAME: str(row)} for row in range(matrix.n)}
    on: dict[int, list[tuple[Shape, dict[str, str], bool]]] = {row: [] for row in range(matrix.n)}
    by_name = {name: row for row, name in enumerate(matrix.names) if name}
    for each in seen.pods:
        if each.node in by_name:
            on[by_name[each.node]].append((each.shape, dict(each.labels), False))
    for result in found.results:
        sites = set()
        pods = {id(w.kind): list(w.pods) for w in result.item.wanted}
        for put in result.puts:
            kind, rows, counts = put.kind, put.rows, put.counts
            mine = next(w.pods for w in result.item.wanted if w.kind is kind)
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                assert count > 0, seed
                assert len(pods[id(kind)]) >= count, seed
                on[row] += [(kind.shape, dict(mine[0].labels), True)] * count
                del pods[id(kind)][:count]
                sites.add(matrix.labels(row)["causeway.dev/site"])
        if result.item.key is not None:
            assert result.count in (0, result.item.count), seed
            if result.item.gang is not None and not result.item.gang.across:
                assert len(sites) <= 1, seed
    offered = {each.name: each.allocatable for each in of.groups}
    for row, pods_on in on.items():
        new = [each for each in pods_on if each[2]]
        if not new:
            continue
        name = matrix.names[row]
        room = next((each.allocatable for each in seen.nodes if each.name == name), None)
        if room is None:
            room = offered[found.packer.groups[int(matrix.group[row])].group.name]
        used: Counter[str] = Counter()
        for like, _, _ in pods_on:
            used.update(dict(like.requests))
        for like, _, _ in new:
            for what, _ in like.requests:
                assert used[what] <= room.get(what, 0), (name, what)
            for key, value in like.selector:
                assert labels[row].get(key) == value, seed
        ports = [port for like, _, _ in pods_on for port in like.ports]
        mine_ports = {port for like, _, _ in new for port in like.ports}
        assert all(ports.count(port) == 1 for port in mine_ports), seed
        for like, pod_labels, _ in new:
            for term in like.apart:
                where = labels[row].get(term.topology)
                there = [
                    other
                    for at, others in on.items()
                    if labels[at].get(term.topology) == where
                    for other in others
                    if matches(term.selector, other[1])
                ]
                own = 1 if matches(term.selector, pod_labels) else 0
                assert len(there) <= own, seed
            for term in like.together:
                where = labels[row].get(term.topology)
                assert any(
                    matches(term.selector, other[1])
                    for at, others in on.items()
                    if labels[at].get(term.topology) == where
                    for other in others
                )


# --- nothing is bought twice --------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(4))
def test_what_boots_is_not_bought_again(part: int) -> None:
    """600 worlds, 20 loops of each."""
    for seed in range(part, 600, 4):
        of, waiting, there = booting.world(seed)
        first, *later = booting.bought(of, waiting, there)
        assert not any(later), seed
        # A plan from nothing is one of those that are compared.
        (needed,) = booting.bought(of, waiting, dict.fromkeys(there, 0), [0])
        missing = {name: size - there[name] for name, size in needed.items() if size > there[name]}
        more = {name: size - there[name] for name, size in first.items()}
        assert _price(of, more) <= _price(of, missing) + 1e-6, seed


@seeds
def test_no_machine_that_is_asked_for_stays_empty(part: int) -> None:
    for seed in range(part, 160, 4):
        of, waiting, there = booting.world(seed)
        (first,) = booting.bought(of, waiting, there, [0])
        seen = booting.seen(of, waiting, {**there, **first})
        held = _plan(of, seen).held
        for name in first:
            assert held >= {each.id for each in seen.groups[name].instances}, seed


def _price(of: Config, units: dict[str, int]) -> float:
    prices = {each.name: each.types[0].on_demand or 0.0 for each in of.groups}
    return sum(prices[name] * number for name, number in units.items())


@seeds
@pytest.mark.parametrize("forecast", [True, False], ids=["as forecast", "otherwise"])
def test_what_comes_up_is_not_bought_again(part: int, forecast: bool) -> None:
    """With limits, gangs and spreads. Some machines have an instance in the next loop, others in a later one.
    Of several zones with the fewest AWS may take another than we do: the next loop learns it, and may ask for
    machines without which more would wait; no other loop asks for anything.
    All are on demand: what a spot machine costs is known once it is there, and may leave room for another."""
    surprises = 0
    for seed, mixed, seen in _worlds(part):
        of = changed(mixed, groups=[changed(each, on_demand_percent=100) for each in mixed.groups])
        chance, memory = Random(seed), Memory()
        learns = True
        for loop in range(4 if forecast else 8):
            now = NOW + 10 * loop
            decision = deciding.decide(changed(seen, at=now), memory, of, now)
            memory = decision.memory
            sizes = {each.group: each.desired for each in decision.actions if isinstance(each, SetDesired)}
            if loop and sizes:
                assert learns, (seed, loop, sizes)
                held = [changed(each, max=seen.groups[each.name].desired) for each in of.groups]
                without = _plan(changed(of, groups=held), seen)
                assert _waiting(decision.verdicts) < _waiting(without.verdicts), (seed, loop, sizes)
            learns, groups = False, {}
            for each in of.groups:
                was = seen.groups[each.name]
                there = changed(was, desired=sizes.get(each.name, was.desired))
                groups[each.name], other = _launched(each, there, chance, forecast)
                learns |= other
            surprises += learns
            seen = changed(seen, groups=groups)
    assert bool(surprises) is not forecast


def _waiting(verdicts: Iterable[Verdict]) -> int:
    return sum(each.count for each in verdicts if each.outcome in ("waits", "never"))


def _launched(of: Group, was: GroupState, chance: Random, forecast: bool) -> tuple[GroupState, bool]:
    """A group with more of the instances that it asks for, each in a zone that has fewest; and whether one is
    in another such zone than the first."""
    there = list(was.instances)
    other = False
    while len(there) < was.desired and chance.random() < 0.7:
        taken = Counter(each.zone for each in there)
        least = [zone for zone in of.zones if taken[zone] == min(taken[each] for each in of.zones)]
        zone = least[0] if forecast else chance.choice(least)
        other |= zone != least[0]
        there.append(instance(of, 100 + len(there), zone=zone, lifecycle="Pending", launched=NOW - 60))
    found: GroupState = changed(was, instances=tuple(there))
    return found, other
