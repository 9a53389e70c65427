"""Whatever happens: no work is lost by choice, no limit is broken, and what is idle goes in the end."""

from __future__ import annotations

from autoscaler import make
from autoscaler.make import NOW
from autoscaler.scale_down_scene import Scene, of
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from infra.autoscaler import backoff
from infra.autoscaler.decision import Evict, FreeNode, RemoveNode, TaintNode, Terminate
from infra.autoscaler.launch_failures import detection
from infra.autoscaler.memory import Backoff, Memory, Resize
from infra.autoscaler.observed.snapshot import GPU, Budget, Instance, Owner
from infra.autoscaler.observed.state_builder import present_units

WEST = make.group(zones=("us-west-2a",), min=2, max=40)
EAST = make.group("us-east-1", zones=("us-east-1a",), max=40)
CPU = make.cpu_group(max=40)
CONFIG = make.config(WEST, EAST, CPU, idle=60, settle=20, boot_timeout=200, spare={"gpu-p3": 1})
SETS = Owner("ReplicaSet", "web", "uid-rs")
OWNERS = (make.job(), SETS, None, make.DAEMON)

EVENTS = some.lists(
    some.tuples(
        some.sampled_from(
            [
                "pod",
                "pod",
                "leaves",
                "hold",
                "spot",
                "refresh",
                "lost",
                "sick",
                "cordon",
                "budget",
                "fail",
                "ok",
            ]
        ),
        some.integers(0, 1000),
    ),
    max_size=40,
)


def happen(world: Scene, what: str, number: int) -> None:
    """One of the things that happen in a cluster."""
    names = sorted(world.nodes)
    node = names[number % len(names)]
    uids = sorted(world.pods)
    match what:
        case "pod":
            owner = OWNERS[number % 4]
            with_gpus = number % 3 == 0 and GPU in world.nodes[node].allocatable
            if world.nodes[node].ready and not world.nodes[node].taints[len(WEST.taints) :]:
                world.put(
                    make.pod(
                        f"p-{len(uids)}-{number}",
                        gpus=int(with_gpus),
                        cpu=200,
                        node=node,
                        owner=owner,
                        started=world.now - 100,
                    )
                )
        case "leaves" if uids:
            del world.pods[uids[number % len(uids)]]
        case "hold":
            world.held = frozenset({node}) if number % 2 else frozenset()
        case "spot":
            world.instance(node, interrupted=world.now + 120)
        case "refresh":
            world.instance(node, lifecycle="Terminating:Wait")
        case "lost":
            world.nodes[node] = replace(world.nodes[node], ready=False, since=world.now)
        case "sick":
            world.nodes[node] = replace(world.nodes[node], sick=True)
        case "cordon":
            world.nodes[node] = replace(world.nodes[node], unschedulable=number % 2 == 0)
        case "budget":
            refuses = Budget("user-ada", "web", make.selector(), 0)
            world.budgets = (refuses,) if number % 2 else ()
        case "fail":
            world.fails = ((Terminate,), (TaintNode,), (FreeNode,), (Evict,))[number % 4]
        case _:
            world.fails = ()


def check(world: Scene) -> None:
    """One loop, of which nothing is wrong."""
    state, nodes, pods = dict(world.groups), dict(world.nodes), dict(world.pods)
    before = world.memory.drains
    found = world.loop()
    for evict in of(Evict, found):
        if evict.by is None:
            pod = pods[evict.uid]
            assert pod.owner == SETS
            assert GPU not in dict(pod.shape.requests)
    for terminate in of(Terminate, found):
        work = [pod for pod in pods.values() if pod.node == terminate.node and not pod.daemon]
        assert not work
        assert any(each.id == terminate.instance for each in state[terminate.group].instances)
    for removed in of(RemoveNode, found):
        assert not nodes[removed.node].ready
    for freed in of(FreeNode, found):
        assert freed.node not in world.memory.drains
    sizes = {name: max(1, len(group.instances) // 10) for name, group in state.items()}
    ends: dict[str, int] = {}
    for terminate in of(Terminate, found):
        # One that AWS did not end is ended again, beside the others.
        again = terminate.node in before and before[terminate.node].stage == "ending"
        ends[terminate.group] = ends.get(terminate.group, 0) + (not again)
    assert all(count <= sizes[name] for name, count in ends.items())


@settings(max_examples=40, deadline=None)
@given(EVENTS)
def test_no_work_is_lost_and_all_ends_well(events: list[tuple[str, int]]) -> None:
    world = Scene(CONFIG)
    world.add(WEST, 4)
    world.add(EAST, 3)
    world.add(CPU, 3)
    world.nodes["titan-a01"] = make.titan()
    for what, number in events:
        happen(world, what, number)
        check(world)

    # Quiet: nobody holds anything, everything works, all work is done.
    world.held, world.fails, world.budgets, world.pods = frozenset(), (), (), {}
    world.nodes = {name: replace(node, unschedulable=False) for name, node in world.nodes.items()}
    for group in (WEST, EAST, CPU):
        for each in world.groups[group.name].instances:
            _undo(world, each)
    for _ in range(100):
        check(world)
    # The least size of the primary site, which is more than the one spare machine.
    assert len(world.present(WEST)) <= 2
    assert len(world.present(EAST)) + len(world.present(CPU)) <= 1
    assert all(not node.taints[len(WEST.taints) :] for node in world.nodes.values() if node.ready)
    assert "titan-a01" in world.nodes


def _undo(world: Scene, instance: Instance) -> None:
    for node in world.nodes.values():
        if node.instance == instance.id:
            world.instance(node.name, interrupted=None)


# --- back-off -----------------------------------------------------------------------------------------------


@given(some.lists(some.floats(0, 20_000), min_size=1, max_size=30))
def test_15_bars_never_shorten(gaps: list[float]) -> None:
    bar: Backoff | None = None
    at = NOW
    for gap in gaps:
        at += gap
        known = bar
        bar = backoff.after(known, "capacity", "", at, CONFIG)
        assert bar.until > at
        assert CONFIG.backoff_min <= backoff.length(bar.step, CONFIG) <= CONFIG.backoff_max
        if known is not None:
            assert bar.until >= known.until
            assert bar.step >= known.step or at - known.last >= CONFIG.backoff_reset
            assert bar.step <= known.step + 1


@settings(max_examples=60, deadline=None)
@given(
    some.integers(0, 20),
    some.lists(some.sampled_from(["InService", "Pending", "Terminating:Wait", "Standby"]), max_size=12),
    some.lists(some.tuples(some.floats(-600, 0), some.text(max_size=40)), max_size=6),
    some.integers(0, 5),
)
def test_18_no_size_goes_below_what_is_there(
    desired: int, lives: list[str], failed: list[tuple[float, str]], least: int
) -> None:
    instances = [make.instance(WEST, number, lifecycle=life) for number, life in enumerate(lives)]
    activities = tuple(make.failed(WEST, text, start=NOW + at) for at, text in failed)
    state = replace(make.state(WEST, desired, instances, activities=activities), min=least)
    memory = Memory(resizes={WEST.name: Resize(NOW - 300, 0, desired)})
    found = detection.learn(make.snapshot(groups=[state]), memory, CONFIG, NOW)
    for size in found.shrink.values():
        assert size < desired
        assert size >= present_units(state)
        assert size >= least
    again = detection.learn(make.snapshot(groups=[state]), found.memory, CONFIG, NOW)
    assert again.memory.backoffs == found.memory.backoffs
    assert again.shrink == found.shrink
