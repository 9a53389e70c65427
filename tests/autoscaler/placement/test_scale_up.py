"""Places for what waits, and the sizes which that takes."""

from __future__ import annotations

from collections import Counter
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

from infra.autoscaler.config import Config, PricedType
from infra.autoscaler.decision import Verdict
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import (
    GPU,
    PODS,
    Attachments,
    DaemonSet,
    Gang,
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
WEST, EAST = group("us-west-2"), group("us-east-1")
CPUS = cpu_group()
ANY, CPU_ALONE, TWO = config(), config(CPUS), config(WEST, EAST)


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
    """Outcome → pods."""
    counts: Counter[str] = Counter()
    for verdict in growth.verdicts:
        counts[verdict.outcome] += verdict.count
    return counts


def only(growth: Growth) -> Verdict:
    (verdict,) = growth.verdicts
    return verdict


def short(verdict: Verdict) -> list[str]:
    """What no machine has as much of."""
    assert verdict.reason is not None
    return [each.what for each in verdict.reason.short]


def codes(growth: Growth) -> dict[str, str]:
    """Group → why it takes none of what was looked at last."""
    return {each.group: each.code for each in growth.verdicts[-1].obstacles}


def backoff(code: str = "capacity", until: float = NOW + 600) -> Backoff:
    return Backoff(code, "no capacity", NOW - 10, NOW - 10, until, 1)


def case(
    name: str, of: Config, asked: Iterable[Pod], sizes: Mapping[str, int], verdicts: str, **seen: Any
) -> Any:
    """What waits in a world, the sizes that it takes, and what becomes of it: ``2 starting, 1 waits``."""
    nodes, groups = seen.pop("nodes", ()), seen.pop("groups", None)
    return pytest.param(of, snapshot(nodes, asked, groups, of=of, **seen), sizes, verdicts, id=name)


def cases(*rows: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("of", "seen", "sizes", "verdicts"), rows)


def check(of: Config, seen: Snapshot, sizes: Mapping[str, int], verdicts: str) -> None:
    growth = plan(seen, of)
    counts = outcomes(growth)
    assert growth.sizes == sizes
    assert ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts)) == verdicts


def one_up(of: Any) -> dict[str, Any]:
    """One machine of a group, which is up."""
    return {"nodes": [node(of)], "groups": [state(of, 1, 1)]}


# --- which machines -----------------------------------------------------------------------------------------

OPEN_GPU = group(taints=(), priority=5)
EIGHT = group(
    types=(PricedType("p3.16xlarge", 1, 64, 24.48, 7.34, "on-demand-p", "spot-p"),),
    allocatable={"cpu": 63_000, "memory": 480 * GI, PODS: 110, GPU: 8},
    taints=(GPU_TAINT,),
)
SMALL = group(
    pool="one",
    types=(PricedType("p3.2xlarge", 1, 8, 3.06, 0.92, "on-demand-p", "spot-p"),),
    allocatable={"cpu": 7500, "memory": 57 * GI, PODS: 58, GPU: 1},
    taints=(GPU_TAINT,),
)
EASTWARDS = ((50, NodeTerm((requires("causeway.dev/site", "In", "us-east-1"),))),)


@cases(
    case("the first group's", ANY, pods(5, gpus=1), {WEST.name: 2}, "5 starting"),
    case("our own machines, then those that are up", ANY, pods(9, gpus=1), {WEST.name: 2},
         "8 fits, 1 starting", nodes=[titan(), node(WEST)],
         groups=[state(WEST, 1, 1), state(EAST), state(group("eu-west-1")), state(CPUS)]),
    case("what runs takes its room", ANY, [pod("old", gpus=3, node="titan-a01"), *pods(2, gpus=1)],
         {WEST.name: 1}, "1 fits, 1 starting", nodes=[titan()]),
    case("ours are not to be used", config(WEST, owned=False), pods(1, gpus=1), {WEST.name: 1}, "1 starting",
         nodes=titans(2)),
    case("the cheaper for few", config(WEST, SMALL), pods(2, gpus=1), {SMALL.name: 2}, "2 starting"),
    case("the cheaper for many", config(WEST, SMALL), pods(8, gpus=1), {WEST.name: 2}, "8 starting"),
    case("priority before price", config(changed(WEST, priority=1), SMALL), pods(2, gpus=1), {WEST.name: 1},
         "2 starting"),
    case("where it would rather be", TWO, pods(2, gpus=4, preferred=EASTWARDS), {EAST.name: 2}, "2 starting"),
    case("where its data is", TWO, pods(2, gpus=4), {EAST.name: 2}, "2 starting",
         namespaces={"user-ada": {"causeway.dev/site": "us-east-1"}}),
    case("what is on its way elsewhere stays there", TWO, pods(8, gpus=4), {}, "8 coming",
         groups=[state(WEST), state(EAST, 8)]),
    case("one that is being deleted", TWO, pods(1, gpus=4), {EAST.name: 1}, "1 starting",
         groups=[state(WEST, deleting=True), state(EAST)]),
    case("one that may not launch", TWO, pods(1, gpus=4), {EAST.name: 1}, "1 starting",
         groups=[state(WEST, suspended=("Launch",)), state(EAST)]),
    case("one that can't be read", TWO, pods(30, gpus=4), {EAST.name: 20}, "20 starting, 10 waits",
         groups=[state(EAST)], errors={"aws/us-west-2": "timed out"}),
    case(
        "amounts beyond all bounds",
        ANY,
        [
            pod("huge", gpus=1, memory=2**62),
            pod("more", extra={"example.com/fpga": 2**63 + 5}),
            *pods(2, gpus=4),
        ],
        {WEST.name: 1},
        "1 fits, 2 never, 1 starting",
        nodes=[titan()],
    ),
)  # fmt: skip
def test_machines_are_started(of: Config, seen: Snapshot, sizes: Mapping[str, int], verdicts: str) -> None:
    check(of, seen, sizes, verdicts)


def test_01_pods_of_different_selectors_sum_into_one_target() -> None:
    asked = [
        *pods(4, "model", gpus=4, selector=(("causeway.dev/gpu-model", "v100"),)),
        *pods(3, "site", gpus=4, selector=(("causeway.dev/site", "us-west-2"),)),
        *pods(2, "class", gpus=4, selector=(("causeway.dev/gpu-class", "standard"),)),
    ]
    assert plan(snapshot(pods=asked, of=ANY), ANY).sizes == {WEST.name: 9}


def test_work_that_fits_holds_its_machines() -> None:
    growth = plan(snapshot(titans(2), pods(8, gpus=1), of=ANY), ANY)
    assert growth.sizes == {}
    assert growth.held == {"titan-a01", "titan-a02"}


# --- rules of pods ------------------------------------------------------------------------------------------


def zonal(**more: Any) -> dict[str, Any]:
    """Groups of one zone each, by the zone's letter."""
    return {name: cpu_group(pool=name, zones=(f"us-west-2{name}",), **more) for name in "ab"}


DB: dict[str, Any] = {"labels": {"app": "db"}}
EVENLY = (Spread(ZONE, 1, selector(app="db")),)
NO_WEB = (PodTerm(HOSTNAME, selector(app="web"), ("user-ada",)),)
NO_WEB_OF_VISION = (PodTerm(HOSTNAME, selector(app="web"), (), among=selector(team="vision")),)
TEAMS = {"user-ada": {"team": "vision"}, "user-bob": {"team": "vision"}, "user-eve": {"team": "speech"}}
TWO_ZONES = zonal(max=2)
PORT = (("TCP", "", 8080),)
IN_B = (NodeTerm((requires(ZONE, "In", "us-west-2b"),)),)
A, B = "research-us-west-2-a", "research-us-west-2-b"
LOW = config(CPUS, min_priority=0)


@cases(
    case(
        "a taint that is not tolerated, and required affinity",
        config(
            cpu_group(pool="batch", taints=(Taint("team", "vision"),)),
            group(pool="one", zones=("us-west-2c",), types=(CPU_TYPE,)),
        ),
        pods(1, affinity=(NodeTerm((requires(ZONE, "In", "us-west-2c"),)),)),
        {"research-us-west-2-one": 1},
        "1 starting",
    ),
    # A group of several zones starts machines where it has the fewest: enough of them are asked for.
    case("a zone", CPU_ALONE, pods(1, selector=((ZONE, "us-west-2c"),)), {CPUS.name: 3}, "1 starting"),
    case("a zone that comes too late", config(cpu_group(max=2)), pods(1, selector=((ZONE, "us-west-2c"),)),
         {}, "1 waits"),
    # Of seven machines in three zones the second and the fifth are in zone b.
    case("as many as come up in a zone within the limits", config(cpu_group(max=7)),
         pods(6, cpu=15_000, selector=((ZONE, "us-west-2b"),)), {CPUS.name: 5}, "2 starting, 4 waits"),
    case("hosts of their own", CPU_ALONE,
         pods(5, apart=(PodTerm(HOSTNAME, selector(app="db"), ("user-ada",)),), **DB), {CPUS.name: 5},
         "5 starting"),
    case("others that keep it away", CPU_ALONE,
         [pod("loner", apart=NO_WEB, node=node(CPUS).name), *pods(2, labels={"app": "web"})], {CPUS.name: 2},
         "2 starting", **one_up(CPUS)),
    case("others that do not", CPU_ALONE, [pod("loner", apart=NO_WEB, node=node(CPUS).name), *pods(2)], {},
         "2 fits", **one_up(CPUS)),
    *(
        case(
            f"others in namespaces with a label, {namespace}",
            CPU_ALONE,
            [
                pod("web", shape(namespace=namespace), labels={"app": "web"}, node=node(CPUS).name),
                pod("new", apart=NO_WEB_OF_VISION),
            ],
            sizes,
            verdicts,
            namespaces=TEAMS,
            **one_up(CPUS),
        )
        for namespace, sizes, verdicts in (
            ("user-bob", {CPUS.name: 2}, "1 starting"),
            ("user-eve", {}, "1 fits"),
        )
    ),
    case("an even spread of large ones", CPU_ALONE, pods(7, cpu=15_000, spread=EVENLY, **DB), {CPUS.name: 7},
         "7 starting"),
    case("and of small ones", CPU_ALONE, pods(9, spread=EVENLY, **DB), {CPUS.name: 3}, "9 starting"),
    case("a spread waits where a zone is full", config(*TWO_ZONES.values()),
         pods(6, cpu=15_000, spread=EVENLY, **DB), {A: 2, B: 2}, "4 starting, 2 waits"),
    case("pods that are to be together share a zone", config(*TWO_ZONES.values()),
         pods(3, cpu=15_000, together=(PodTerm(ZONE, selector(app="db"), ("user-ada",)),), **DB), {A: 2},
         "2 starting, 1 waits"),
    case("host ports", CPU_ALONE, pods(3, ports=PORT), {CPUS.name: 3}, "3 starting"),
    case("a host port that is taken", CPU_ALONE,
         [pod("old", ports=(("TCP", "0.0.0.0", 8080),), node=node(CPUS).name), *pods(1, ports=PORT)],
         {CPUS.name: 2}, "1 starting", **one_up(CPUS)),
    *(
        case(f"a volume, {name}", config(*zonal().values()), pods(1, claims=("data",)), sizes, verdicts,
            claims=where)
        for name, where, sizes, verdicts in (
            ("in a zone", {"user-ada/data": IN_B}, {B: 1}, "1 starting"),
            ("anywhere", {"user-ada/data": None}, {A: 1}, "1 starting"),
            ("that does not exist", {}, {}, "1 waits"),
        )
    ),
    case("another scheduler's", CPU_ALONE, pods(3, scheduler="volcano"), {}, ""),
    case("low priority", LOW, pods(1, priority=-1, cpu=9_000), {}, "1 waits"),
    case("high priority", LOW, pods(1, priority=0, cpu=9_000), {CPUS.name: 1}, "1 starting"),
    case("low, and room", LOW, pods(1, priority=-1, cpu=9_000), {}, "1 fits", **one_up(CPUS)),
)  # fmt: skip
def test_07_rules_of_pods(of: Config, seen: Snapshot, sizes: Mapping[str, int], verdicts: str) -> None:
    check(of, seen, sizes, verdicts)


def test_higher_priorities_come_first() -> None:
    of = config(changed(WEST, max=2))
    low = pods(3, "low", gpus=4, created=NOW - 900)
    high = pods(2, "high", gpus=4, priority=1000)
    growth = plan(snapshot(pods=[*low, *high], of=of), of)
    starts = {verdict.example: verdict.outcome for verdict in growth.verdicts}
    assert starts == {"user-ada/high-0": "starting", "user-ada/low-0": "waits"}


def test_07_a_spread_counts_the_nodes_that_its_policies_say() -> None:
    """A node of one's own stands empty in a third zone: whether it counts, all others may have but one."""
    zones = zonal(max=3)
    of = config(*zones.values())
    bare = titan("titan-9", taints=(Taint("closed"),))
    lone = changed(bare, labels={**bare.labels, ZONE: "rack"})
    elsewhere = (NodeTerm((requires(ZONE, "NotIn", "rack"),)),)

    def sizes(where: tuple[NodeTerm, ...] | None = None, **policies: bool) -> dict[str, int]:
        spread = (Spread(ZONE, 1, selector(app="db"), **policies),)
        asked = pods(4, cpu=15_000, spread=spread, affinity=where, **DB)
        return dict(plan(snapshot([lone], asked, of=of), of).sizes)

    # By default its taint is no reason to leave it out, and nobody may come to it.
    assert sizes() == {A: 1, B: 1}
    assert sizes(taints=True) == {A: 2, B: 2}
    assert sizes(elsewhere) == {A: 2, B: 2}
    assert sizes(elsewhere, affinity=False) == {A: 1, B: 1}


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


FIRST = node(CPUS)
RUN = with_claims("a", "b", node=FIRST.name)


@pytest.mark.parametrize(
    ("nodes", "asked", "volumes", "sizes", "verdicts"),
    [
        # Two go to the machine that is there; others are taken to have room for two as well.
        ([FIRST], with_claims(*"abcde"), attachments({FIRST.name: 2}, *"abcde"), {CPUS.name: 3},
         "2 fits, 3 starting"),
        # What is attached already takes no room.
        ([FIRST], [*RUN, *with_claims("a", count=11), *with_claims("again")],
         attachments({FIRST.name: 2}, *"abc", again="vol-a"), {}, "12 fits"),
        ([FIRST], [*RUN, *with_claims("again", "c")], attachments({FIRST.name: 2}, *"abc", again="vol-a"),
         {CPUS.name: 2}, "1 fits, 1 starting"),
        # Volumes that are made for each pod count for each.
        ([FIRST], [*with_claims("a", node=FIRST.name), *pods(4, "own", ephemeral=("ebs", "ebs", "efs"))],
         attachments({FIRST.name: 5}, "a"), {CPUS.name: 2}, "2 fits, 2 starting"),
        # Without a node that states a limit there is none, nor is there one of a driver that has not started.
        ([], with_claims(*"abcdefgh"), attachments({}, *"abcdefgh"), {CPUS.name: 1}, "8 starting"),
        ([FIRST], with_claims(*"abcdefgh"), attachments({"x": 1}, *"abcdefgh"), {}, "8 fits"),
        ([FIRST], with_claims("a+b+c"), attachments({FIRST.name: 2}, *"abc"), {}, "1 never"),
    ],
)  # fmt: skip
def test_07_a_driver_attaches_so_many_volumes_to_a_machine(
    nodes: list[Node], asked: Iterable[Pod], volumes: Attachments, sizes: dict[str, int], verdicts: str
) -> None:
    groups = [state(CPUS, len(nodes), len(nodes))]
    seen = snapshot(nodes, asked, groups, claims=dict.fromkeys(volumes.claims, ()), attachments=volumes)
    check(CPU_ALONE, seen, sizes, verdicts)
    assert again(seen, CPU_ALONE, plan(seen, CPU_ALONE)).sizes == {}


def test_07_a_gang_is_counted_by_its_volumes_and_undone_with_them() -> None:
    """Three machines would do in the first region, which has one; the second has three."""
    west, east = cpu_group(max=1), cpu_group("us-east-1")
    of = config(west, east)
    one = node(west)
    volumes = attachments({one.name: 1}, "a", "b", "c", "d")
    shapes = [shape(claims=(name,)) for name in "abc"]
    together = gang(sets=tuple(GangSet(each, 1) for each in shapes))
    members = [pod(f"train-{i}", each, gang=together.key) for i, each in enumerate(shapes)]
    seen = snapshot(
        [one],
        [*members, *with_claims("d", created=NOW)],
        [state(west, 1, 1), state(east, 0)],
        gangs=[together],
        claims=dict.fromkeys(volumes.claims, ()),
        attachments=volumes,
    )
    growth = plan(seen, of)
    assert growth.sizes == {east.name: 3}
    assert {each.gang: each.outcome for each in growth.verdicts} == {together.key: "starting", None: "fits"}


HUNGRY = DaemonSet("kube-system", "agent", shape(cpu=700, namespace="kube-system"))


@cases(
    case("without", CPU_ALONE, pods(2, cpu=7800), {CPUS.name: 1}, "2 starting"),
    case("with", CPU_ALONE, pods(2, cpu=7800), {CPUS.name: 2}, "2 starting", daemons=(HUNGRY,)),
)
def test_08_daemons_take_their_part_of_a_new_machine(
    of: Config, seen: Snapshot, sizes: Mapping[str, int], verdicts: str
) -> None:
    check(of, seen, sizes, verdicts)


def test_09_one_reason_a_group_and_only_once() -> None:
    growth = plan(snapshot(pods=pods(300, gpus=16), of=ANY), ANY)
    verdict = only(growth)
    assert growth.sizes == {}
    assert (verdict.outcome, verdict.count) == ("never", 300)
    assert codes(growth) == {each.name: "size" for each in ANY.groups}
    assert {(each.what, each.requested) for each in verdict.obstacles} == {(GPU, 16)}
    assert [each.limit for each in verdict.obstacles] == [each.allocatable.get(GPU, 0) for each in ANY.groups]


@cases(
    case("as long as others fit", config(OPEN_GPU, cpu_group(max=2)), pods(6, cpu=7800), {CPUS.name: 2},
         "4 starting, 2 waits"),
    case("where no other is as large", config(OPEN_GPU, cpu_group(max=2)), pods(1, cpu=30_000),
         {OPEN_GPU.name: 1}, "1 starting"),
)  # fmt: skip
def test_10_work_without_gpus_takes_no_machine_with_gpus(
    of: Config, seen: Snapshot, sizes: Mapping[str, int], verdicts: str
) -> None:
    check(of, seen, sizes, verdicts)


def test_11_one_gpu_is_had_of_a_machine_with_eight() -> None:
    of = config(EIGHT)
    assert plan(snapshot(pods=pods(9, gpus=1), of=of), of).sizes == {EIGHT.name: 2}


# --- gangs --------------------------------------------------------------------------------------------------


def members(whole: Gang, count: int | None = None, **more: Any) -> tuple[Pod, ...]:
    """Pods of a gang: all, or so many."""
    (of_one_kind,) = whole.sets
    return pods(count or of_one_kind.count, whole.name, like=of_one_kind.shape, gang=whole.key, **more)


def gang_case(
    name: str, of: Config, whole: Gang, sizes: Mapping[str, int], verdicts: str, **more: Any
) -> Any:
    asked = more.pop("asked", None)
    return case(name, of, members(whole) if asked is None else asked, sizes, verdicts, gangs=[whole], **more)


RUNNING = pod("train-9", like=shape(gpus=4), gang=gang().key, node=node(EAST).name)
BATCH = gang(count=9, gpus=4, kind="Workload", least=6)
EMPTY_SETS = changed(BATCH, sets=())
LOW_GANG = gang("job", 2, shape(priority=-1, cpu=9_000), priority=-1)


@cases(
    gang_case("all of it", TWO, gang(count=20, gpus=4), {WEST.name: 20}, "20 starting"),
    gang_case("or nothing", TWO, gang(count=21, gpus=4), {}, "21 never"),
    gang_case("one site alone", TWO, gang(count=30, gpus=4), {}, "30 never"),
    gang_case("sites together, if it may", TWO, gang(count=30, gpus=4, across=True),
        {WEST.name: 20, EAST.name: 10}, "30 starting"),
    gang_case("where all of it has room", config(changed(WEST, max=10), EAST), gang(count=12, gpus=4),
        {EAST.name: 12}, "12 starting"),
    gang_case("members that do not exist yet", config(WEST), gang(count=8, gpus=4, kind="JobSet"),
        {WEST.name: 8}, "8 starting", asked=()),
    gang_case("of which some exist", config(WEST), gang(count=8, gpus=4, kind="JobSet"), {WEST.name: 8},
        "8 starting", asked=members(gang(count=8, gpus=4, kind="JobSet"), 3)),
    gang_case(
        "six that run, of eight: two are over",
        config(WEST),
        gang(count=8, gpus=4),
        {},
        "",
        asked=[
            changed(each, node=node(WEST, number).name, phase="Running")
            for number, each in enumerate(members(gang(count=8, gpus=4), 6), 1)
        ],
        nodes=[node(WEST, number) for number in range(1, 7)],
        groups=[state(WEST, 6, 6)],
    ),
    gang_case("its least number and more", config(changed(WEST, max=7)), BATCH, {WEST.name: 7}, "7 starting"),
    gang_case("less than that", config(changed(WEST, max=5)), BATCH, {}, "9 never"),
    gang_case("fewer pods than its least", config(WEST), EMPTY_SETS, {}, "3 waits", asked=members(BATCH, 3)),
    gang_case("it follows its running members", TWO, gang(count=3, gpus=4), {EAST.name: 3}, "2 starting",
        asked=[RUNNING, *members(gang(count=3, gpus=4), 2)], nodes=[node(EAST)],
        groups=[state(WEST), state(EAST, 1, 1)]),
    gang_case("of low priority", LOW, LOW_GANG, {}, "2 waits", asked=()),
    gang_case("of enough", LOW, changed(LOW_GANG, priority=0), {CPUS.name: 2}, "2 starting", asked=()),
)  # fmt: skip
def test_12_gangs(of: Config, seen: Snapshot, sizes: Mapping[str, int], verdicts: str) -> None:
    check(of, seen, sizes, verdicts)


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
    verdicts = {each.gang: each for each in growth.verdicts}
    assert verdicts[fine.key].outcome == "fits"
    assert growth.held == set(verdicts[fine.key].where)
    assert verdicts[late.key].outcome == "waits"
    assert [(each.kind, each.about) for each in growth.notices] == [("gang", late.key)]
    later = plan(seen, of, after, NOW + of.backoff_min)
    assert {each.gang: each.outcome for each in later.verdicts}[late.key] == "coming"


def test_12_a_request_is_accepted_provisioned_and_forgotten() -> None:
    of = config(WEST)
    request = gang(count=2, gpus=4, kind="ProvisioningRequest")

    def answers(growth: Growth) -> list[str]:
        return [each.condition for each in growth.answers]

    seen = snapshot(of=of, gangs=[request])
    first = plan(seen, of)
    assert answers(first) == ["Accepted"]
    assert first.sizes == {WEST.name: 2}
    seen = changed(seen, gangs={request.key: changed(request, condition="Accepted")})
    assert answers(again(seen, of, first)) == []
    nodes = [node(WEST, number) for number in (1, 2)]
    up = changed(seen, nodes=nodes, groups={WEST.name: state(WEST, 2, 2)})
    ready = plan(up, of)
    assert answers(ready) == ["Provisioned"]
    assert ready.bookings[request.key].machines == tuple(each.name for each in nodes)
    assert ready.held == {each.name for each in nodes}
    memory = Memory(bookings=ready.bookings)
    booked = changed(up, gangs={request.key: changed(request, condition="Provisioned")})
    others = changed(booked, pods=pods(1, "other", gpus=4))
    held = plan(others, of, memory)
    assert held.sizes == {WEST.name: 3}, "what is booked is not given to others"
    assert held.bookings == ready.bookings
    over = plan(changed(booked, at=NOW + 601), of, memory, NOW + 601)
    assert answers(over) == ["BookingExpired"]
    assert over.bookings == {}
    assert over.held == frozenset()
    bound = [
        pod(f"p-{n}", like=request.sets[0].shape, gang=request.key, node=each.name)
        for n, each in enumerate(nodes)
    ]
    done = plan(changed(booked, pods=bound), of, memory)
    assert (answers(done), done.bookings, done.sizes) == ([], {}, {})


EFA, PAGES = "vpc.amazonaws.com/efa", "hugepages-2Mi"
OTHERS = group(
    pool="gpu-p4d", labels={"causeway.dev/gpu-model": "a100-40gb"}, allocatable={**P3, EFA: 4, PAGES: 10 * GI}
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
    assert short(only(growth)) == [name]
    assert growth.sizes == {}


@pytest.mark.parametrize("asked", [{EFA: 1}, {PAGES: GI}], ids=str)
def test_what_other_machines_have_is_named_and_asked_for_again(asked: dict[str, int]) -> None:
    """Kueue may give it another flavor."""
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
    assert short(only(plan(snapshot(pods=pods(1, gpus=1, extra={EFA: 1}), of=of), of))) == [EFA]


def test_what_a_node_does_not_report_yet_is_not_unknown() -> None:
    """A plugin comes up after its node."""
    of = config(OTHERS)
    bare = {name: amount for name, amount in OTHERS.allocatable.items() if name != EFA}
    request = gang(like=shape(gpus=4, extra={EFA: 4}), kind="ProvisioningRequest", condition="Accepted")
    nodes = [node(OTHERS, allocatable=bare)]
    growth = plan(snapshot(nodes, groups=[state(OTHERS, 1, 1)], of=of, gangs=[request]), of)
    assert "CapacityRevoked" not in {each.condition for each in growth.answers}


# --- limits -------------------------------------------------------------------------------------------------

NAMELESS = group(
    pool="strange",
    types=(PricedType("p9.huge", 1, 32, None, None, "on-demand-p", "spot-p"),),
    allocatable=P3,
    taints=(GPU_TAINT,),
)
SPOT = group(pool="spot", on_demand_percent=0, priority=1)


@cases(
    case("a full group spills over", config(changed(WEST, max=3), EAST), pods(5, gpus=4),
         {WEST.name: 3, EAST.name: 2}, "5 starting"),
    case("quotas count what runs",
         config(WEST, EAST, quotas={"us-west-2": {"on-demand-p": 100}, "us-east-1": {"on-demand-p": 64}}),
         pods(9, gpus=4), {WEST.name: 3, EAST.name: 2}, "1 fits, 4 starting, 4 waits", nodes=[node(WEST)],
         groups=[state(WEST, 1, 1), state(EAST)]),
    case("two groups share a quota, by market",
         config(SPOT, WEST, quotas={"us-west-2": {"on-demand-p": 64, "spot-p": 32}}), pods(5, gpus=4),
         {SPOT.name: 1, WEST.name: 2}, "3 starting, 2 waits"),
    case("the budget", config(WEST, EAST, max_hourly_cost=50.0), pods(9, gpus=4), {WEST.name: 3},
         "1 fits, 3 starting, 5 waits", nodes=[node(EAST)], groups=[state(WEST), state(EAST, 1, 1)]),
    case("no price", config(NAMELESS), pods(1, gpus=1), {NAMELESS.name: 1}, "1 starting"),
    case("no price, and a budget", config(NAMELESS, max_hourly_cost=500.0), pods(1, gpus=1), {}, "1 waits"),
)  # fmt: skip
def test_20_limits(of: Config, seen: Snapshot, sizes: Mapping[str, int], verdicts: str) -> None:
    check(of, seen, sizes, verdicts)


def test_14_a_group_in_backoff_is_passed_over_and_wins_again_after_it() -> None:
    of = config(WEST, EAST)
    memory = Memory(backoffs={WEST.name: backoff()})
    seen = snapshot(pods=pods(8, gpus=4), of=of)
    assert plan(seen, of, memory).sizes == {EAST.name: 8}
    assert plan(seen, of, memory, NOW + 601).sizes == {WEST.name: 8}


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
    [notice] = growth.notices
    assert (notice.kind, notice.about, notice.level) == ("fault", "user-ada/bad-0", "error")


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
