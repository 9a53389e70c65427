"""Places for what waits, and the sizes which that takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from autoscaler.make import (
    CPU_TYPE,
    GI,
    GPU_TAINT,
    NOW,
    P3,
    changed,
    config,
    cpu_group,
    gang,
    group,
    instance,
    node,
    pod,
    pods,
    requires,
    selector,
    shape,
    snapshot,
    state,
    titan,
    titans,
)

from infra.autoscaler.config import Config, MachineType
from infra.autoscaler.decision import Verdict
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import (
    DEVICES,
    GPU,
    PODS,
    Attachments,
    DaemonSet,
    GangSet,
    Node,
    NodeTerm,
    Pod,
    PodTerm,
    Snapshot,
    Spread,
)
from infra.autoscaler.placement import scale_up
from infra.autoscaler.placement.bin_packing import Packer
from infra.autoscaler.placement.demand import Kind
from infra.autoscaler.placement.scale_up import Growth

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
WEST, EAST, IRELAND = group("us-west-2"), group("us-east-1"), group("eu-west-1")
CPUS = cpu_group()


def plan(seen: Snapshot, of: Config, memory: Memory | None = None, now: float = NOW) -> Growth:
    memory = memory or Memory()
    view = state_builder.build(seen, memory, of, now)
    growth = scale_up.plan(view, seen, memory, of, now)
    for name, desired in growth.sizes.items():
        most = next(each.max for each in of.groups if each.name == name)
        assert seen.groups[name].desired < desired <= most
    return growth


def again(seen: Snapshot, of: Config, growth: Growth, memory: Memory | None = None) -> Growth:
    """The next loop, with the sizes written and nothing else changed."""
    groups = {
        name: changed(each, desired=growth.sizes.get(name, each.desired))
        for name, each in seen.groups.items()
    }
    return plan(changed(seen, groups=groups), of, memory)


def outcomes(growth: Growth) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for each in growth.verdicts:
        found[each.outcome] = found.get(each.outcome, 0) + each.count
    return found


def only(growth: Growth) -> Verdict:
    (verdict,) = growth.verdicts
    return verdict


def backoff(code: str = "capacity", until: float = NOW + 600) -> Backoff:
    return Backoff(code, "no capacity", NOW - 10, NOW - 10, until, 1)


def test_work_starts_machines_of_the_first_group() -> None:
    of = config()
    growth = plan(snapshot(pods=pods(5, gpus=1), of=of), of)
    assert growth.sizes == {WEST.name: 2}
    assert only(growth).outcome == "starting"
    assert only(growth).where == (WEST.name,)
    assert only(growth).text == f"2 machines of {WEST.name} start now"
    assert only(growth).example == "user-ada/work-0"


def test_nothing_waits_nothing_is_done() -> None:
    of = config()
    growth = plan(snapshot(titans(3), of=of), of)
    assert growth == Growth({}, (), frozenset())


def test_01_pods_of_different_selectors_sum_into_one_target() -> None:
    of = config()
    asked = (
        *pods(4, "v100", gpus=4, selector=(("causeway.dev/gpu-model", "v100"),)),
        *pods(3, "west", gpus=4, selector=(("causeway.dev/site", "us-west-2"),)),
        *pods(2, "class", gpus=4, selector=(("causeway.dev/gpu-class", "standard"),)),
    )
    growth = plan(snapshot(pods=asked, of=of), of)
    assert growth.sizes == {WEST.name: 9}


def test_02_what_is_coming_absorbs_pods_and_a_second_loop_writes_nothing() -> None:
    of = config()
    seen = snapshot(pods=[*pods(23, gpus=1), *pods(90, "light", cpu=4000)], of=of)
    first = plan(seen, of)
    assert first.sizes == {WEST.name: 6, CPUS.name: 30}
    second = again(seen, of, first)
    assert second.sizes == {}
    assert outcomes(second) == {"coming": 113}


def test_02_machines_that_boot_absorb_pods() -> None:
    of = config()
    seen = snapshot(
        pods=pods(12, gpus=1), groups=[state(WEST, 3, 2), state(EAST), state(IRELAND), state(CPUS)]
    )
    seen = changed(
        seen,
        groups={
            **seen.groups,
            WEST.name: changed(
                seen.groups[WEST.name], instances=[instance(WEST, n, lifecycle="Pending") for n in (1, 2)]
            ),
        },
    )
    growth = plan(seen, of)
    assert growth.sizes == {}
    assert outcomes(growth) == {"coming": 12}
    assert growth.held == {instance(WEST, 1).id, instance(WEST, 2).id}
    assert plan(changed(seen, pods=pods(13, gpus=1)), of).sizes == {WEST.name: 4}


def test_work_that_fits_starts_nothing_and_holds_its_machines() -> None:
    of = config()
    seen = snapshot(titans(2), pods(8, gpus=1), of=of)
    growth = plan(seen, of)
    assert growth.sizes == {}
    assert only(growth).outcome == "fits"
    assert growth.held == {"titan-a01", "titan-a02"}


def test_our_own_machines_come_first_then_those_that_are_up() -> None:
    of = config()
    up = state(WEST, 1, 1)
    seen = snapshot(
        [titan(), node(WEST)], pods(9, gpus=1), [up, state(EAST), state(IRELAND), state(CPUS)], of=of
    )
    growth = plan(seen, of)
    assert growth.sizes == {WEST.name: 2}
    assert [(each.outcome, each.count) for each in growth.verdicts] == [("fits", 8), ("starting", 1)]


def test_what_runs_takes_its_room() -> None:
    of = config()
    seen = snapshot([titan()], [pod("old", gpus=3, node="titan-a01"), *pods(2, gpus=1)], of=of)
    assert outcomes(plan(seen, of)) == {"fits": 1, "starting": 1}


def test_07_a_taint_that_is_not_tolerated_and_required_affinity() -> None:
    tainted = cpu_group(pool="batch", taints=(Taint("team", "vision"),))
    zone_c = (NodeTerm((requires(ZONE, "In", "us-west-2c"),)),)
    of = config(tainted, group(pool="one", zones=("us-west-2c",), types=(CPU_TYPE,)))
    growth = plan(snapshot(pods=pods(1, affinity=zone_c), of=of), of)
    assert [*growth.sizes] == ["research-us-west-2-one"]


def test_07_a_zone_that_is_asked_for_is_waited_for() -> None:
    """A group of several zones starts machines where it has the fewest: enough of them are asked for."""
    of = config(cpu_group())
    wants = ((ZONE, "us-west-2c"),)
    growth = plan(snapshot(pods=pods(1, selector=wants), of=of), of)
    assert growth.sizes == {CPUS.name: 3}
    growth = plan(
        snapshot(pods=pods(1, selector=wants), groups=[state(cpu_group(max=2))]), of=config(cpu_group(max=2))
    )
    assert growth.sizes == {}
    assert only(growth).outcome == "waits"


def test_07_as_many_as_come_up_in_a_zone_within_the_limits() -> None:
    """Of seven machines in three zones the second and the fifth are in zone b; the others wait."""
    few = cpu_group(max=7)
    asked = pods(6, cpu=15_000, selector=((ZONE, "us-west-2b"),))
    growth = plan(snapshot(pods=asked, groups=[state(few)]), of=config(few))
    assert growth.sizes == {few.name: 5}
    assert outcomes(growth) == {"starting": 2, "waits": 4}


def test_07_hosts_of_their_own() -> None:
    of = config(CPUS)
    asked = pods(5, labels={"app": "db"}, apart=(PodTerm(HOSTNAME, selector(app="db"), ("user-ada",)),))
    growth = plan(snapshot(pods=asked, of=of), of)
    assert growth.sizes == {CPUS.name: 5}
    assert again(snapshot(pods=asked, of=of), of, growth).sizes == {}


def test_07_others_that_keep_it_away_are_heard_too() -> None:
    of = config(CPUS)
    apart = (PodTerm(HOSTNAME, selector(app="web"), ("user-ada",)),)
    up = state(CPUS, 1, 1)
    seen = snapshot(
        [node(CPUS)],
        [pod("loner", apart=apart, node=node(CPUS).name), *pods(2, labels={"app": "web"})],
        [up],
    )
    assert plan(seen, of).sizes == {CPUS.name: 2}
    other = snapshot([node(CPUS)], [pod("loner", apart=apart, node=node(CPUS).name), *pods(2)], [up])
    assert plan(other, of).sizes == {}


def test_07_an_even_spread_over_zones() -> None:
    of = config(cpu_group(max=30))
    spread = (Spread(ZONE, 1, selector(app="db")),)
    big = pods(7, cpu=15_000, labels={"app": "db"}, spread=spread)
    growth = plan(snapshot(pods=big, of=of), of)
    assert growth.sizes == {CPUS.name: 7}
    small = pods(9, labels={"app": "db"}, spread=spread)
    assert plan(snapshot(pods=small, of=of), of).sizes == {CPUS.name: 3}


def test_07_a_spread_waits_where_a_zone_is_shut() -> None:
    zones = {name: cpu_group(pool=name, zones=(f"us-west-2{name}",), max=2) for name in "ab"}
    of = config(*zones.values())
    spread = (Spread(ZONE, 1, selector(app="db")),)
    asked = pods(6, cpu=15_000, labels={"app": "db"}, spread=spread)
    growth = plan(snapshot(pods=asked, of=of), of)
    assert growth.sizes == {each.name: 2 for each in zones.values()}
    assert outcomes(growth) == {"starting": 4, "waits": 2}


def test_07_a_spread_counts_the_nodes_that_its_policies_say() -> None:
    """A node of one's own stands empty in a third zone: whether it counts, all others may have but one."""
    zones = {name: cpu_group(pool=name, zones=(f"us-west-2{name}",), max=3) for name in "ab"}
    of = config(*zones.values())
    bare = titan("titan-9", taints=(Taint("closed"),))
    lone = changed(bare, labels={**bare.labels, ZONE: "rack"})

    def sizes(**policies: bool) -> dict[str, int]:
        spread = (Spread(ZONE, 1, selector(app="db"), **policies),)
        asked = pods(4, cpu=15_000, labels={"app": "db"}, spread=spread)
        return dict(plan(snapshot([lone], asked, of=of), of).sizes)

    two = {each.name: 2 for each in zones.values()}
    one = {each.name: 1 for each in zones.values()}
    # By default its taint is no reason to leave it out, and nobody may come to it.
    assert sizes() == one
    assert sizes(taints=True) == two

    def narrowed(**policies: bool) -> dict[str, int]:
        spread = (Spread(ZONE, 1, selector(app="db"), **policies),)
        asked = pods(
            4, cpu=15_000, labels={"app": "db"}, spread=spread,
            affinity=(NodeTerm((requires(ZONE, "NotIn", "rack"),)),),
        )  # fmt: skip
        return dict(plan(snapshot([lone], asked, of=of), of).sizes)

    assert narrowed() == two
    assert narrowed(affinity=False) == one


def test_07_others_in_namespaces_with_a_label_are_heard() -> None:
    of = config(CPUS)
    teams = {"user-ada": {"team": "vision"}, "user-bob": {"team": "vision"}, "user-eve": {"team": "speech"}}
    apart = (PodTerm(HOSTNAME, selector(app="web"), (), among=selector(team="vision")),)
    up = state(CPUS, 1, 1)

    def sizes(namespace: str) -> dict[str, int]:
        there = pod("web", shape(namespace=namespace), labels={"app": "web"}, node=node(CPUS).name)
        asked = pod("new", apart=apart)
        seen = snapshot([node(CPUS)], [there, asked], [up], namespaces=teams)
        return dict(plan(seen, of).sizes)

    assert sizes("user-bob") == {CPUS.name: 2}
    assert sizes("user-eve") == {}


def test_07_devices_by_resource_claims_are_never_had_and_that_is_said() -> None:
    of = config(CPUS)
    (verdict,) = plan(snapshot(pods=pods(1, extra={DEVICES: 1}), of=of), of).verdicts
    assert verdict.outcome == "never"
    assert "no devices for resource claims (DRA)" in verdict.text


def test_07_pods_below_a_stated_priority_use_what_is_free() -> None:
    of = config(CPUS, min_priority=0)
    low, high = (pods(1, name, priority=priority, cpu=9_000) for name, priority in (("low", -1), ("high", 0)))
    growth = plan(snapshot(pods=low, of=of), of)
    assert (growth.sizes, outcomes(growth)) == ({}, {"waits": 1})
    assert "min_priority" in growth.verdicts[0].text
    assert plan(snapshot(pods=high, of=of), of).sizes == {CPUS.name: 1}
    free = plan(snapshot([node(CPUS)], low, [state(CPUS, 1, 1)]), of)
    assert outcomes(free) == {"fits": 1}
    together = gang("job", 2, shape(priority=-1, cpu=9_000), priority=-1)
    assert plan(snapshot(gangs=[together], of=of), of).sizes == {}
    assert plan(snapshot(gangs=[changed(together, priority=0)], of=of), of).sizes == {CPUS.name: 2}


def test_07_pods_of_another_scheduler_are_its_own_business() -> None:
    of = config(CPUS)
    growth = plan(snapshot(pods=pods(3, scheduler="volcano"), of=of), of)
    assert growth.sizes == {}
    assert outcomes(growth) == {}


def test_07_pods_that_want_to_be_together_share_a_zone() -> None:
    zones = {name: cpu_group(pool=name, zones=(f"us-west-2{name}",), max=2) for name in "ab"}
    of = config(*zones.values())
    near = (PodTerm(ZONE, selector(app="db"), ("user-ada",)),)
    asked = pods(3, cpu=15_000, labels={"app": "db"}, together=near)
    growth = plan(snapshot(pods=asked, of=of), of)
    assert growth.sizes == {zones["a"].name: 2}
    assert outcomes(growth) == {"starting": 2, "waits": 1}


def test_07_host_ports_are_had_once() -> None:
    of = config(CPUS)
    asked = pods(3, ports=(("TCP", "", 8080),))
    assert plan(snapshot(pods=asked, of=of), of).sizes == {CPUS.name: 3}
    taken = [pod("old", ports=(("TCP", "0.0.0.0", 8080),), node=node(CPUS).name), *asked[:1]]
    assert plan(snapshot([node(CPUS)], taken, [state(CPUS, 1, 1)]), of).sizes == {CPUS.name: 2}


def test_07_a_volume_is_where_it_is() -> None:
    of = config(cpu_group(pool="a", zones=("us-west-2a",)), cpu_group(pool="b", zones=("us-west-2b",)))
    there = (NodeTerm((requires(ZONE, "In", "us-west-2b"),)),)
    seen = snapshot(pods=pods(1, claims=("data",)), claims={"user-ada/data": there}, of=of)
    assert [*plan(seen, of).sizes] == ["research-us-west-2-b"]
    growth = plan(changed(seen, claims={}), of)
    assert growth.sizes == {}
    assert only(growth).text == "waits: its volume claim data does not exist"
    assert [*plan(changed(seen, claims={"user-ada/data": None}), of).sizes] == ["research-us-west-2-a"]


EBS = "ebs.csi.aws.com"


def attachments(limits: Mapping[str, int], *claims: str, **same: str) -> Attachments:
    """Limits of EBS by node. Each claim has a volume of its own, or by name one of these."""
    volumes = {f"user-ada/{claim}": (EBS, f"vol-{claim}") for claim in claims}
    volumes |= {f"user-ada/{claim}": (EBS, volume) for claim, volume in same.items()}
    return Attachments({name: {EBS: limit} for name, limit in limits.items()}, volumes, {"ebs": EBS})


def with_claims(*names: str, count: int = 1, **more: Any) -> tuple[Pod, ...]:
    """For each claim (``a``, or ``a+b``) so many pods that use it."""
    return tuple(
        each for name in names for each in pods(count, f"with-{name}", claims=tuple(name.split("+")), **more)
    )


def volumes_plan(
    there: Iterable[Node], some: Iterable[Pod], found: Attachments, of: Config, machines: int
) -> Growth:
    seen = snapshot(
        there,
        some,
        [state(each, machines, machines) for each in of.groups],
        claims=dict.fromkeys(found.claims, ()),
        attachments=found,
    )
    growth = plan(seen, of)
    assert again(seen, of, growth).sizes == {}
    return growth


def test_07_a_driver_attaches_so_many_volumes_to_a_machine() -> None:
    one = node(CPUS)
    found = attachments({one.name: 2}, "a", "b", "c", "d", "e")
    growth = volumes_plan([one], with_claims("a", "b", "c", "d", "e"), found, config(CPUS), 1)
    # Two go to the machine that is there; others are taken to have room for two as well.
    assert growth.sizes == {CPUS.name: 3}
    assert outcomes(growth) == {"fits": 2, "starting": 3}


def test_07_volumes_that_are_attached_already_take_no_room() -> None:
    one = node(CPUS)
    runs = with_claims("a", "b", node=one.name)
    found = attachments({one.name: 2}, "a", "b", "c", again="vol-a")
    asked = [*with_claims("a", count=11), *with_claims("again")]
    growth = volumes_plan([one], [*runs, *asked], found, config(CPUS), 1)
    assert growth.sizes == {}
    assert outcomes(growth) == {"fits": 12}
    growth = volumes_plan([one], [*runs, *with_claims("again", "c")], found, config(CPUS), 1)
    assert growth.sizes == {CPUS.name: 2}
    assert outcomes(growth) == {"fits": 1, "starting": 1}


def test_07_volumes_made_for_each_pod_count_for_each() -> None:
    one = node(CPUS)
    found = attachments({one.name: 5}, "a")
    asked = pods(4, "own", ephemeral=("ebs", "ebs", "efs"))
    growth = volumes_plan([one], [*with_claims("a", node=one.name), *asked], found, config(CPUS), 1)
    assert growth.sizes == {CPUS.name: 2}
    assert outcomes(growth) == {"fits": 2, "starting": 2}


def test_07_without_a_node_that_states_a_limit_there_is_none() -> None:
    found = attachments({}, *"abcdefgh")
    growth = volumes_plan([], with_claims(*"abcdefgh"), found, config(CPUS), 0)
    assert growth.sizes == {CPUS.name: 1}
    # A machine whose driver has not stated one yet takes what comes, as the scheduler has it.
    growth = volumes_plan(
        [node(CPUS)], with_claims(*"abcdefgh"), attachments({"x": 1}, *"abcdefgh"), config(CPUS), 1
    )
    assert outcomes(growth) == {"fits": 8}


def test_07_more_volumes_than_any_machine_attaches_are_said() -> None:
    one = node(CPUS)
    found = attachments({one.name: 2}, "a", "b", "c")
    growth = volumes_plan([one], with_claims("a+b+c"), found, config(CPUS), 1)
    assert growth.sizes == {}
    assert only(growth).outcome == "never"
    assert f"attaches 2 volumes of {EBS} to a machine, the pod has 3" in only(growth).obstacles[0].text


def test_07_a_gang_is_counted_by_its_volumes_and_undone_with_them() -> None:
    """Three machines would do in the first region, which has one; the second has three."""
    west, east = cpu_group(max=1), cpu_group("us-east-1")
    of = config(west, east)
    one = node(west)
    found = attachments({one.name: 1}, "a", "b", "c", "d")
    shapes = [shape(claims=(name,)) for name in "abc"]
    together = gang(sets=tuple(GangSet(each, 1) for each in shapes))
    members = [pod(f"train-{i}", each, gang=together.key) for i, each in enumerate(shapes)]
    seen = snapshot(
        [one],
        [*members, *with_claims("d", created=NOW)],
        [state(west, 1, 1), state(east, 0)],
        gangs=[together],
        claims=dict.fromkeys(found.claims, ()),
        attachments=found,
    )
    growth = plan(seen, of)
    assert growth.sizes == {east.name: 3}
    assert {each.gang: each.outcome for each in growth.verdicts} == {
        together.key: "starting",
        None: "fits",
    }


def test_08_daemons_take_their_part_of_a_new_machine() -> None:
    of = config(CPUS)
    hungry = DaemonSet("kube-system", "agent", shape(cpu=700, namespace="kube-system"))
    asked = pods(2, cpu=7800)
    assert plan(snapshot(pods=asked, of=of), of).sizes == {CPUS.name: 1}
    assert plan(snapshot(pods=asked, of=of, daemons=(hungry,)), of).sizes == {CPUS.name: 2}


def test_09_one_reason_a_group_and_only_once() -> None:
    of = config()
    growth = plan(snapshot(pods=pods(300, gpus=16), of=of), of)
    verdict = only(growth)
    assert growth.sizes == {}
    assert verdict.outcome == "never"
    assert verdict.count == 300
    assert [each.group for each in verdict.obstacles] == [each.name for each in of.groups]
    assert verdict.obstacles[0].text == "is too small: asks for 16 nvidia.com/gpu, there are 4"
    assert verdict.text.startswith("fits nowhere as it stands: ")


def test_10_work_without_cards_takes_no_machine_with_cards() -> None:
    open_gpu = group(taints=(), priority=5)
    of = config(open_gpu, cpu_group(max=2))
    growth = plan(snapshot(pods=pods(6, cpu=7800), of=of), of)
    assert growth.sizes == {CPUS.name: 2}
    waits = growth.verdicts[-1]
    assert (waits.outcome, waits.count) == ("waits", 2)
    assert {each.group: each.text for each in waits.obstacles} == {
        open_gpu.name: "has GPUs, which are kept for work that asks for them: others take such pods",
        CPUS.name: "is at its maximum of 2",
    }
    large = plan(snapshot(pods=pods(1, cpu=30_000), of=of), of)
    assert large.sizes == {open_gpu.name: 1}


def test_11_one_card_is_had_of_a_machine_with_eight() -> None:
    eight = MachineType("p3.16xlarge", 1, 64, 24.48, 7.34, "on-demand-p", "spot-p")
    offers = {"cpu": 63_000, "memory": 480 * GI, PODS: 110, GPU: 8}
    of = config(group(types=(eight,), allocatable=offers, taints=(GPU_TAINT,)))
    growth = plan(snapshot(pods=pods(9, gpus=1), of=of), of)
    assert growth.sizes == {of.groups[0].name: 2}


def test_12_a_gang_gets_all_or_nothing() -> None:
    of = config(WEST, EAST)
    whole = gang(count=20, gpus=4)
    asked = pods(20, like=whole.sets[0].shape, gang=whole.key)
    growth = plan(snapshot(pods=asked, of=of, gangs=[whole]), of)
    assert growth.sizes == {WEST.name: 20}
    larger = gang(count=21, gpus=4)
    asked = pods(21, like=larger.sets[0].shape, gang=larger.key)
    growth = plan(snapshot(pods=asked, of=of, gangs=[larger]), of)
    assert growth.sizes == {}
    assert only(growth).outcome == "never"
    assert only(growth).text == (
        "never fits as it stands: needs 21 places at once, and no site has ever more than 20"
    )


def test_12_a_gang_stands_on_what_is_there_what_comes_and_what_is_new() -> None:
    of = config(WEST, EAST)
    whole = gang(count=5, gpus=4)
    asked = pods(5, like=whole.sets[0].shape, gang=whole.key)
    seen = snapshot([node(WEST)], asked, [state(WEST, 3, 1), state(EAST)], gangs=[whole])
    growth = plan(seen, of)
    assert growth.sizes == {WEST.name: 5}
    assert only(growth).outcome == "starting"
    assert growth.held == {node(WEST).name}
    assert growth.waiting == {whole.key: NOW + of.boot_timeout}
    assert again(seen, of, growth, Memory(waiting=growth.waiting)).sizes == {}


def test_12_a_gang_spans_sites_only_if_it_may() -> None:
    of = config(WEST, EAST)
    for across, sizes in ((False, {}), (True, {WEST.name: 20, EAST.name: 10})):
        whole = gang(count=30, gpus=4, across=across)
        asked = pods(30, like=whole.sets[0].shape, gang=whole.key)
        assert plan(snapshot(pods=asked, of=of, gangs=[whole]), of).sizes == sizes


def test_12_a_gang_goes_where_all_of_it_has_room() -> None:
    of = config(changed(WEST, max=10), EAST)
    whole = gang(count=12, gpus=4)
    asked = pods(12, like=whole.sets[0].shape, gang=whole.key)
    assert plan(snapshot(pods=asked, of=of, gangs=[whole]), of).sizes == {EAST.name: 12}


def test_12_members_that_do_not_exist_yet_count() -> None:
    of = config(WEST)
    whole = gang(count=8, gpus=4, kind="JobSet")
    growth = plan(snapshot(of=of, gangs=[whole]), of)
    assert growth.sizes == {WEST.name: 8}
    assert only(growth).pods == ()
    assert only(growth).count == 8
    some = pods(3, like=whole.sets[0].shape, gang=whole.key)
    assert plan(snapshot(pods=some, of=of, gangs=[whole]), of).sizes == {WEST.name: 8}
    running = pods(6, "run", like=whole.sets[0].shape, gang=whole.key, node="")
    placed = [changed(each, node=node(WEST, n).name) for n, each in enumerate(running, 1)]
    seen = snapshot([node(WEST, n) for n in range(1, 7)], placed, [state(WEST, 6, 6)], gangs=[whole])
    assert plan(seen, of).sizes == {}, "two of its pods are over"


def test_12_a_gang_with_a_least_number_takes_what_there_is_beyond() -> None:
    of = config(changed(WEST, max=7))
    whole = gang(count=9, gpus=4, kind="Workload", least=6)
    asked = pods(9, like=whole.sets[0].shape, gang=whole.key)
    growth = plan(snapshot(pods=asked, of=of, gangs=[whole]), of)
    assert growth.sizes == {WEST.name: 7}
    of = config(changed(WEST, max=5))
    assert plan(snapshot(pods=asked, of=of, gangs=[whole]), of).sizes == {}
    early = pods(3, like=whole.sets[0].shape, gang=whole.key)
    few = plan(snapshot(pods=early, of=config(WEST), gangs=[changed(whole, sets=())]), config(WEST))
    assert few.sizes == {}
    assert only(few).text == "waits until all 6 of its pods are there; 3 are"


def test_12_a_part_of_a_gang_at_its_deadline_frees_its_own_machines_only() -> None:
    of = config(WEST)
    late, fine = gang("late", count=3, gpus=4), gang("fine", count=2, gpus=4)
    asked = [
        *pods(3, "late", like=late.sets[0].shape, gang=late.key),
        *pods(2, "fine", like=fine.sets[0].shape, gang=fine.key),
    ]
    nodes = [node(WEST, number) for number in (1, 2, 3)]
    seen = snapshot(nodes, asked, [state(WEST, 5, 3)], gangs=[late, fine])
    before = Memory(waiting={late.key: NOW + 60, fine.key: NOW + 800})
    growth = plan(seen, of, before)
    assert growth.sizes == {}
    assert growth.held == {each.name for each in nodes}
    after = Memory(waiting={late.key: NOW - 1, fine.key: NOW + 800})
    growth = plan(seen, of, after)
    assert growth.sizes == {}
    told = {each.gang: each for each in growth.verdicts}
    assert told[fine.key].outcome == "fits"
    assert growth.held == set(told[fine.key].where)
    assert told[late.key].outcome == "waits"
    assert "not all of its machines were up within 15 min; tries again at" in told[late.key].text
    assert [each.key for each in growth.notices] == [f"gang/{late.key}"]
    later = plan(seen, of, after, NOW + of.backoff_min)
    assert {each.gang: each.outcome for each in later.verdicts}[late.key] == "coming"


def test_12_a_gang_follows_its_running_members() -> None:
    of = config(WEST, EAST)
    whole = gang(count=3, gpus=4)
    running = pod("train-0", like=whole.sets[0].shape, gang=whole.key, node=node(EAST).name)
    asked = pods(2, like=whole.sets[0].shape, gang=whole.key)
    seen = snapshot([node(EAST)], [running, *asked], [state(WEST), state(EAST, 1, 1)], gangs=[whole])
    assert plan(seen, of).sizes == {EAST.name: 3}


def test_12_a_request_is_accepted_provisioned_and_forgotten() -> None:
    of = config(WEST)
    request = gang(count=2, gpus=4, kind="ProvisioningRequest")

    def told(growth: Growth) -> list[str]:
        return [each.condition for each in growth.answers]

    seen = snapshot(of=of, gangs=[request])
    first = plan(seen, of)
    assert told(first) == ["Accepted"]
    assert first.sizes == {WEST.name: 2}
    seen = changed(seen, gangs={request.key: changed(request, condition="Accepted")})
    assert told(again(seen, of, first)) == []
    nodes = [node(WEST, number) for number in (1, 2)]
    up = changed(seen, nodes=nodes, groups={WEST.name: state(WEST, 2, 2)})
    ready = plan(up, of)
    assert told(ready) == ["Provisioned"]
    assert ready.bookings[request.key].machines == tuple(each.name for each in nodes)
    assert ready.held == {each.name for each in nodes}
    kept = Memory(bookings=ready.bookings)
    booked = changed(up, gangs={request.key: changed(request, condition="Provisioned")})
    others = changed(booked, pods=pods(1, "other", gpus=4))
    held = plan(others, of, kept)
    assert held.sizes == {WEST.name: 3}, "what is booked is not given to others"
    assert held.bookings == ready.bookings
    over = plan(changed(booked, at=NOW + 601), of, kept, NOW + 601)
    assert told(over) == ["BookingExpired"]
    assert over.bookings == {}
    assert over.held == frozenset()
    bound = [
        pod(f"p-{n}", like=request.sets[0].shape, gang=request.key, node=each.name)
        for n, each in enumerate(nodes)
    ]
    done = plan(changed(booked, pods=bound), of, kept)
    assert (told(done), done.bookings, done.sizes) == ([], {}, {})


def test_12_a_request_that_can_never_be_met_fails() -> None:
    of = config(WEST)
    request = gang(count=21, gpus=4, kind="ProvisioningRequest", condition="Accepted")
    growth = plan(snapshot(of=of, gangs=[request]), of)
    assert [(each.condition, each.reason) for each in growth.answers] == [("Failed", "NeverFits")]
    assert growth.sizes == {}


EFA, PAGES = "vpc.amazonaws.com/efa", "hugepages-2Mi"
OTHERS = group(
    pool="gpu-p4d",
    labels={"causeway.dev/gpu-model": "a100-40gb"},
    allocatable={**P3, EFA: 4, PAGES: 10 * GI},
)


@pytest.mark.parametrize("asked", [{EFA: 1}, {PAGES: GI}, {"example.com/fpga": 2}], ids=str)
def test_a_request_for_what_nothing_has_is_revoked_and_says_what(asked: dict[str, int]) -> None:
    of = config(WEST)
    request = gang(like=shape(gpus=1, extra=asked), kind="ProvisioningRequest", condition="Accepted")
    growth = plan(snapshot(of=of, gangs=[request]), of)
    (answer,) = growth.answers
    # Kueue makes a request that has failed again, and gives up work whose capacity was revoked.
    assert (answer.condition, answer.reason) == ("CapacityRevoked", "NothingHasIt")
    (name,) = asked
    assert name in answer.message
    assert "nvidia.com/gpu" not in answer.message
    assert name in only(growth).text
    assert growth.sizes == {}


@pytest.mark.parametrize("asked", [{EFA: 1}, {PAGES: GI}], ids=str)
def test_what_other_machines_have_is_named_and_asked_for_again(asked: dict[str, int]) -> None:
    """Kueue may give it another flavour."""
    of = config(WEST, OTHERS)
    v100 = (("causeway.dev/gpu-model", "v100"),)
    request = gang(
        like=shape(gpus=1, extra=asked, selector=v100), kind="ProvisioningRequest", condition="Accepted"
    )
    (answer,) = plan(snapshot(of=of, gangs=[request]), of).answers
    assert (answer.condition, answer.reason) == ("Failed", "NeverFits")
    (name,) = asked
    assert name in answer.message
    assert "GPU" not in answer.message


def test_a_pod_is_told_which_resource_no_machine_has() -> None:
    of = config(WEST, CPUS)
    text = only(plan(snapshot(pods=pods(1, gpus=1, extra={EFA: 1}), of=of), of)).text
    assert EFA in text
    assert "v100" not in text


def test_what_a_node_does_not_report_yet_is_not_unknown() -> None:
    """A plugin comes up after its node."""
    of = config(OTHERS)
    bare = {name: amount for name, amount in OTHERS.allocatable.items() if name != EFA}
    request = gang(like=shape(gpus=4, extra={EFA: 4}), kind="ProvisioningRequest", condition="Accepted")
    nodes = [node(OTHERS, allocatable=bare)]
    growth = plan(snapshot(nodes, groups=[state(OTHERS, 1, 1)], of=of, gangs=[request]), of)
    assert "CapacityRevoked" not in {each.condition for each in growth.answers}


def test_14_a_group_in_backoff_is_passed_over_and_wins_again_after_it() -> None:
    of = config(WEST, EAST)
    memory = Memory(backoffs={WEST.name: backoff()})
    seen = snapshot(pods=pods(8, gpus=4), of=of)
    assert plan(seen, of, memory).sizes == {EAST.name: 8}
    assert plan(seen, of, memory, NOW + 601).sizes == {WEST.name: 8}


def test_14_what_is_on_its_way_elsewhere_stays_there_when_a_backoff_ends() -> None:
    of = config(WEST, EAST)
    seen = snapshot(pods=pods(8, gpus=4), groups=[state(WEST), state(EAST, 8)])
    growth = plan(seen, of)
    assert growth.sizes == {}
    assert only(growth).outcome == "coming"


def test_what_is_said_where_nobody_has_capacity() -> None:
    of = config(WEST, EAST)
    memory = Memory(backoffs={WEST.name: backoff(), EAST.name: backoff("quota", NOW + 300)})
    growth = plan(snapshot(pods=pods(2, gpus=4), of=of), of, memory)
    verdict = only(growth)
    assert verdict.outcome == "waits"
    assert verdict.text == (
        "waits for 8 x v100: us-west-2 has no capacity until 08:10 UTC, "
        "us-east-1 is over its quota until 08:05 UTC, next try us-east-1 at 08:05 UTC"
    )
    assert [each.until for each in verdict.obstacles] == [NOW + 600, NOW + 300]


def test_zones_without_capacity_are_not_counted_on() -> None:
    of = config(cpu_group())
    memory = Memory(backoffs={f"{CPUS.name}/us-west-2a": backoff()})
    seen = snapshot(pods=pods(1, selector=((ZONE, "us-west-2b"),)), of=of)
    assert plan(seen, of, memory).sizes == {CPUS.name: 1}
    shut = snapshot(pods=pods(1, selector=((ZONE, "us-west-2a"),)), of=of)
    growth = plan(shut, of, memory)
    assert growth.sizes == {}
    (obstacle,) = only(growth).obstacles
    assert (obstacle.group, obstacle.until) == (CPUS.name, memory.backoffs[f"{CPUS.name}/us-west-2a"].until)


def test_20_a_full_group_spills_over() -> None:
    of = config(changed(WEST, max=3), EAST)
    assert plan(snapshot(pods=pods(5, gpus=4), of=of), of).sizes == {WEST.name: 3, EAST.name: 2}


def test_20_quotas_count_what_runs_and_spill_over() -> None:
    of = config(WEST, EAST, quotas={"us-west-2": {"on-demand-p": 100}, "us-east-1": {"on-demand-p": 64}})
    seen = snapshot([node(WEST)], pods(9, gpus=4), [state(WEST, 1, 1), state(EAST)])
    growth = plan(seen, of)
    assert growth.sizes == {WEST.name: 3, EAST.name: 2}
    assert outcomes(growth) == {"fits": 1, "starting": 4, "waits": 4}
    texts = [each.text for each in growth.verdicts[-1].obstacles]
    assert texts == [
        "would exceed the quota on-demand-p of us-west-2, 100 vCPUs",
        "would exceed the quota on-demand-p of us-east-1, 64 vCPUs",
    ]


def test_20_two_groups_share_a_quota_by_market() -> None:
    spot = group(pool="spot", on_demand_percent=0, priority=1)
    of = config(spot, WEST, quotas={"us-west-2": {"on-demand-p": 64, "spot-p": 32}})
    growth = plan(snapshot(pods=pods(5, gpus=4), of=of), of)
    assert growth.sizes == {spot.name: 1, WEST.name: 2}


def test_never_over_the_budget() -> None:
    of = config(WEST, EAST, max_hourly_cost=50.0)
    growth = plan(snapshot([node(EAST)], pods(9, gpus=4), [state(WEST), state(EAST, 1, 1)]), of)
    assert growth.sizes == {WEST.name: 3}
    assert growth.verdicts[-1].obstacles[0].text == "costs $12.24 an hour, of the budget $1.04 are left"


def test_a_machine_without_a_price_is_not_started_where_there_is_a_budget() -> None:
    nameless = MachineType("p9.huge", 1, 32, None, None, "on-demand-p", "spot-p")
    strange = group(pool="strange", types=(nameless,), allocatable=P3, taints=(GPU_TAINT,))
    assert plan(snapshot(pods=pods(1, gpus=1), of=config(strange)), config(strange)).sizes
    of = config(strange, max_hourly_cost=500.0)
    assert plan(snapshot(pods=pods(1, gpus=1), of=of), of).sizes == {}


def test_a_group_that_can_not_be_read_is_left_alone() -> None:
    of = config(WEST, EAST)
    seen = snapshot(pods=pods(2, gpus=4), groups=[state(EAST)], errors={"aws/us-west-2": "timed out"})
    growth = plan(seen, of)
    assert growth.sizes == {EAST.name: 2}
    many = plan(changed(seen, pods=pods(30, gpus=4)), of)
    assert many.verdicts[-1].obstacles[0].text == "can't be read: timed out"


def test_higher_priorities_come_first() -> None:
    of = config(changed(WEST, max=2))
    low = pods(3, "low", gpus=4, created=NOW - 900)
    high = pods(2, "high", gpus=4, priority=1000)
    growth = plan(snapshot(pods=[*low, *high], of=of), of)
    told = {each.example: each.outcome for each in growth.verdicts}
    assert told == {"user-ada/high-0": "starting", "user-ada/low-0": "waits"}


def test_the_cheaper_of_equal_groups_is_taken_for_the_whole_batch() -> None:
    small = MachineType("p3.2xlarge", 1, 8, 3.06, 0.92, "on-demand-p", "spot-p")
    offers = {"cpu": 7500, "memory": 57 * GI, PODS: 58, GPU: 1}
    one = group(pool="one", types=(small,), allocatable=offers, taints=(GPU_TAINT,))
    of = config(WEST, one)
    assert plan(snapshot(pods=pods(2, gpus=1), of=of), of).sizes == {one.name: 2}
    assert plan(snapshot(pods=pods(8, gpus=1), of=of), of).sizes == {WEST.name: 2}
    pool_first = config(changed(WEST, priority=1), one)
    growth = plan(snapshot(pods=pods(2, gpus=1), of=pool_first), pool_first)
    assert growth.sizes == {WEST.name: 1}, "the pool's priority goes before the price"


def test_work_goes_to_where_it_would_rather_be() -> None:
    of = config(WEST, EAST)
    near = ((50, NodeTerm((requires("causeway.dev/site", "In", "us-east-1"),))),)
    assert plan(snapshot(pods=pods(2, gpus=4, preferred=near), of=of), of).sizes == {EAST.name: 2}
    homes = {"user-ada": {"causeway.dev/site": "us-east-1"}}
    assert plan(snapshot(pods=pods(2, gpus=4), of=of, namespaces=homes), of).sizes == {EAST.name: 2}


def test_only_machines_of_groups_count_where_ours_are_not_to_be_used() -> None:
    of = config(WEST, owned=False)
    assert plan(snapshot(titans(2), pods(1, gpus=1), of=of), of).sizes == {WEST.name: 1}


def test_amounts_beyond_all_bounds_do_no_harm() -> None:
    of = config()
    asked = [
        pod("huge", gpus=1, memory=2**62),
        pod("more", extra={"example.com/fpga": 2**63 + 5}),
        *pods(2, gpus=4),
    ]
    growth = plan(snapshot([titan()], asked, of=of), of)
    assert growth.sizes == {WEST.name: 1}
    assert outcomes(growth) == {"fits": 1, "starting": 1, "never": 2}


@pytest.mark.parametrize("what", [{"deleting": True}, {"suspended": ("Launch",)}])
def test_groups_that_launch_nothing_are_passed_over(what: dict[str, Any]) -> None:
    of = config(WEST, EAST)
    seen = snapshot(pods=pods(1, gpus=4), groups=[state(WEST, **what), state(EAST)])
    assert plan(seen, of).sizes == {EAST.name: 1}


def test_work_that_we_fail_at_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    of = config()
    honest = Packer.put

    def put(self: Packer, kind: Kind, *rest: Any, **more: Any) -> int:
        if kind.gpus == 3:
            raise ZeroDivisionError("of something")
        return honest(self, kind, *rest, **more)

    monkeypatch.setattr(Packer, "put", put)
    growth = plan(snapshot(pods=[*pods(2, "bad", gpus=3), *pods(2, gpus=4)], of=of), of)
    assert growth.sizes == {WEST.name: 2}
    assert outcomes(growth) == {"starting": 2, "waits": 2}
    assert [(each.key, each.level) for each in growth.notices] == [("fault/user-ada/bad-0", "error")]


def test_machines_of_pods_that_wait_go_to_no_gang_that_came_later() -> None:
    """The scheduler takes the older of equal priority first."""
    one = group(max=3)
    sweep = pods(8, "sweep", shape(gpus=1), created=NOW - 300)
    later = gang("late", count=1, gpus=4, kind="ProvisioningRequest", created=NOW - 5)
    seen = snapshot((), sweep, (state(one, 2),), gangs=(later,))
    found = plan(seen, config(one))
    # Two machines are on their way for the sweep; the gang gets one of its own.
    assert found.sizes == {one.name: 3}
    assert {each.outcome for each in found.verdicts if each.gang} == {"starting"}
    older = changed(later, created=NOW - 600)
    seen = changed(seen, gangs={older.key: older})
    found = plan(seen, config(one))
    assert found.sizes == {one.name: 3}
    assert {each.outcome for each in found.verdicts if each.gang} == {"coming"}
