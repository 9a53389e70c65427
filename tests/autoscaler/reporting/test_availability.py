"""What is published for people: what is free, and the queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autoscaler.make import NOW, config, group, instance, node, pods, shape, snapshot, state, titans
from msgspec import structs

from infra.autoscaler.config import Config
from infra.autoscaler.memory import Backoff, Booking, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import (
    GPU,
    Flavor,
    GangSet,
    Holding,
    NodeTerm,
    Queued,
    Queues,
    Requirement,
    Toleration,
)
from infra.autoscaler.reporting import availability
from infra.autoscaler.reporting.availability import WHY
from infra.catalogue.labels import GPU_LIMIT, GPU_MODEL, LIMITED_GPUS, POOL

P3 = group()
EAST = group("us-east-1")
OF = config(P3, EAST)
TITAN = Flavor("physical.titan", labels={GPU_MODEL: "titan-x-pascal"})
V100 = Flavor("gpu-p3", "gpu-p3", labels={GPU_MODEL: "v100", POOL: "gpu-p3"})
FLAVORS = {each.name: each for each in (TITAN, V100)}


def published(
    of: Config = OF,
    memory: Memory | None = None,
    *,
    queues: Queues | None = None,
    flavors: Mapping[str, Flavor] = FLAVORS,
    startable: Mapping[str, float] | None = None,
    at: float = NOW,
    **more: Any,
) -> dict[str, Any]:
    memory = memory or Memory()
    view = state_builder.build(snapshot(of=of, **more), memory, of, at)
    values, _ = availability.content(view, queues, flavors, memory, of, startable or {})
    found: dict[str, Any] = json.loads(availability.text(values))
    return found


def queued(name: str, gpus: int = 4, *, count: int = 1, priority: int = 0, **more: Any) -> Queued:
    more.setdefault("queue", "team-vision")
    more.setdefault("seconds", 3600.0)
    like = more.pop("like", None) or shape(gpus=gpus, cpu=0, memory=0)
    return Queued(
        f"user-ada/jobset-{name}", "user-ada", "JobSet", name, priority=priority, since=NOW - 60,
        sets=(GangSet(like, count),), **more,
    )  # fmt: skip


def queues(*waiting: Queued, titan: int = 8, v100: int = 0, holding: tuple[Holding, ...] = ()) -> Queues:
    return Queues(
        waiting=waiting,
        holding=holding,
        quotas={"cohort/all": {"physical.titan": {GPU: titan}, "gpu-p3": {GPU: v100}}},
        sources={"team-vision": "cohort/all", "team-audio": "cohort/all"},
        offers={"team-vision": ("physical.titan", "gpu-p3"), "team-audio": ("physical.titan", "gpu-p3")},
    )


def holding(gpus: int, *, since: float = NOW, admitted: bool = True, seconds: float | None = 600) -> Holding:
    return Holding("cohort/all", (("physical.titan", GPU, gpus),), since, admitted, seconds)


def starts(of: Queues, **more: Any) -> list[str | None]:
    return [each["latest_start"] or each["unknown"] for each in published(queues=of, **more)["queue"]]


# --- machines -----------------------------------------------------------------------------------------------


def test_what_is_free_of_machines_that_are_alike() -> None:
    nodes = titans(3)
    work = (*pods(1, "one", gpus=1, node=nodes[0].name), *pods(1, "all", gpus=4, node=nodes[1].name))
    (row,) = published(nodes=nodes, pods=work)["machines"]
    assert row == {
        "site": "rack-a", "pool": None, "model": "titan-x-pascal",
        "ready": 3, "starting": 0, "gpus": 12, "free": 7, "largest": 4,
    }  # fmt: skip


def test_machines_on_their_way_and_those_of_a_pool() -> None:
    groups = [state(P3, 3, [instance(P3, 1), instance(P3, 2)]), state(EAST)]
    (row,) = published(nodes=[node(P3, 1)], groups=groups)["machines"]
    # One has no node yet, another no instance.
    assert (row["site"], row["pool"], row["model"]) == ("us-west-2", "gpu-p3", "v100")
    assert (row["ready"], row["starting"], row["free"]) == (1, 2, 4)


def test_machines_that_take_no_work_are_not_there() -> None:
    master = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
    first, second, third = titans(3)
    nodes = [
        structs.replace(first, ready=False),
        structs.replace(second, unschedulable=True),
        structs.replace(third, taints=(master,)),
    ]
    assert published(nodes=nodes)["machines"] == []


def test_machines_that_wait_for_a_gang_are_not_free() -> None:
    memory = Memory(bookings={"JobSet/user-ada/x": Booking((titans(1)[0].name,), NOW + 60)})
    (row,) = published(nodes=titans(2), memory=memory)["machines"]
    assert (row["free"], row["largest"]) == (4, 4)


def test_where_there_is_no_capacity_until_when() -> None:
    bar = Backoff("capacity", "none", NOW, NOW, NOW + 300, 1)
    found = published(memory=Memory(backoffs={P3.name: bar}))
    (row,) = found["no_capacity"]
    assert row["site"] == "us-west-2"
    assert row["until"] == availability.stamp(NOW + 300)
    assert row["why"] == "no capacity"
    launch = [state(P3, suspended=("Launch", "AZRebalance")), state(EAST)]
    (row,) = published(groups=launch)["no_capacity"]
    assert row["until"] is None


# --- the queue ----------------------------------------------------------------------------------------------


def test_without_queues_nothing_is_said_of_them() -> None:
    found = published()
    assert (found["version"], found["queue"], found["quotas"]) == (1, None, None)


def test_who_is_ahead_in_ones_own_queue_with_how_many_gpus() -> None:
    found = published(queues=queues(queued("a", 8), queued("b", queue="team-audio"), queued("c", 2, count=3)))
    rows = [
        (each["name"], each["gpus"], each["position"], each["ahead"], each["gpus_ahead"])
        for each in found["queue"]
    ]
    assert rows == [("a", 8, 1, 0, 0), ("b", 4, 1, 0, 0), ("c", 6, 2, 1, 8)]
    assert {(each["namespace"], each["kind"]) for each in found["queue"]} == {("user-ada", "JobSet")}


def test_starts_by_declared_times_rounded_up_to_minutes() -> None:
    of = queues(queued("a", 8, seconds=90.0), queued("b", 8), holding=(holding(4),))
    assert starts(of) == [availability.minute(NOW + 600), availability.minute(NOW + 690)]
    assert availability.minute(NOW + 690) == availability.stamp(NOW + 720)


def test_what_waits_for_its_machines_holds_its_quota_until_these_must_have_come() -> None:
    of = queues(queued("a", 8), holding=(holding(4, admitted=False),))
    assert starts(of) == [availability.minute(NOW + 600 + OF.boot_timeout)]


def test_why_a_start_is_not_known() -> None:
    of = queues(
        queued("a", 8),
        queued("b", 99),
        queued("c", queue=""),
        queued("d", 8),
        holding=(holding(4, seconds=None),),
    )
    no_time, large, no_queue, behind = starts(of)
    assert (no_time, large, no_queue, behind) == (WHY["no-time"], WHY["too-large"], WHY["no-queue"], no_time)


def test_what_has_quota_and_is_not_started_waits_for_something_else() -> None:
    of = queues(queued("a", 8))
    assert starts(of) == [availability.minute(NOW)]
    known = {"user-ada/jobset-a": NOW - availability.SETTLED}
    assert starts(of, startable=known) == [WHY["no-place"]]
    view = state_builder.build(snapshot(of=OF), Memory(), OF, NOW)
    assert availability.content(view, of, FLAVORS, Memory(), OF, {})[1] == {"user-ada/jobset-a": NOW}
    assert availability.content(view, of, FLAVORS, Memory(), OF, known)[1] == known


def test_a_closed_flavor_counts_from_when_its_first_back_off_ends() -> None:
    bars = {
        each.name: Backoff("capacity", "none", NOW, NOW, NOW + more, 1)
        for each, more in ((P3, 300), (EAST, 900))
    }
    flavors = {**FLAVORS, "gpu-p3": structs.replace(V100, held=True)}
    of = queues(queued("a", 4), titan=0, v100=4)
    found = published(queues=of, memory=Memory(backoffs=bars), flavors=flavors)
    assert found["queue"][0]["latest_start"] == availability.minute(NOW + 300)
    (row,) = found["quotas"]
    assert (row["free"], row["closed_until"]) == (0, availability.stamp(NOW + 300))


def test_a_user_at_the_limit_of_the_group_waits_for_the_own_work_to_end() -> None:
    limits = {
        name: Flavor(f"limit.team-vision.{name}", taints=(Taint(GPU_LIMIT, name, "NoSchedule"),))
        for name in ("user-ada", "user-alan")
    }
    tolerations = (Toleration(GPU_LIMIT, "Equal", "user-ada", "NoSchedule"),)
    mine = shape(gpus=2, cpu=0, memory=0, tolerations=tolerations)
    of = queues(queued("mine", like=mine), queued("without", like=shape(cpu=1, memory=0)))
    held = ((limits["user-ada"].name, LIMITED_GPUS, 3), (TITAN.name, GPU, 3))
    of = structs.replace(
        of,
        holding=(Holding("cohort/all", held, NOW, True, 600),),
        quotas={
            "cohort/all": {TITAN.name: {GPU: 8}, **{each.name: {LIMITED_GPUS: 4} for each in limits.values()}}
        },
        offers={"team-vision": (TITAN.name, *(each.name for each in limits.values()))},
    )
    flavors = {each.name: each for each in (TITAN, *limits.values())}
    assert starts(of, flavors=flavors) == [availability.minute(NOW + 600), availability.minute(NOW)]


def test_what_is_left_for_a_newcomer() -> None:
    (row,) = published(queues=queues(queued("a", 8, seconds=60.0), holding=(holding(4),)))["quotas"]
    assert row == {
        "quota": "cohort/all", "flavor": "physical.titan", "pool": None, "model": "titan-x-pascal",
        "gpus": 8, "free": 4, "closed_until": None,
        "later": [[availability.minute(NOW + 600), 0], [availability.minute(NOW + 660), 8]],
    }  # fmt: skip


def test_nothing_changes_while_the_world_does_not() -> None:
    of = queues(
        queued("a", 8, seconds=90.0), queued("b", 8), holding=(holding(4), holding(4, since=NOW - 30))
    )
    assert published(queues=of, at=NOW + 45) == published(queues=of)


def test_a_long_queue_is_cut_and_says_so() -> None:
    found = published(queues=queues(*(queued(f"n{n}", 1) for n in range(availability.MOST + 5))))
    assert (len(found["queue"]), found["queue_cut"]) == (availability.MOST, 5)


def test_the_largest_that_is_published_fits_a_config_map() -> None:
    many = (queued(f"{'n' * 50}-{n}", 8, queue="team-vision") for n in range(availability.MOST))
    view = state_builder.build(snapshot(of=OF), Memory(), OF, NOW)
    values, _ = availability.content(view, queues(*many), FLAVORS, Memory(), OF, {})
    assert len(availability.text(values).encode()) < 1_000_000


# --- flavors -----------------------------------------------------------------------------------------------


def takes(flavor: Flavor, **like: Any) -> bool:
    return availability.takes(flavor, shape(**like), (TITAN, V100))


def term(key: str, operator: str, *values: str) -> NodeTerm:
    return NodeTerm((Requirement(key, operator, values),))


def test_flavors_that_selectors_do_not_contradict() -> None:
    assert takes(TITAN)
    assert takes(V100, selector=((GPU_MODEL, "v100"),))
    assert not takes(TITAN, selector=((GPU_MODEL, "v100"),))
    assert not takes(TITAN, affinity=(term(GPU_MODEL, "In", "v100", "a100"),))
    assert takes(TITAN, affinity=(term(GPU_MODEL, "NotIn", "v100"),))
    # A label that one of the flavors has is one that the others lack.
    assert not takes(TITAN, selector=((POOL, "gpu-p3"),))


def test_labels_that_no_flavor_has_are_the_schedulers() -> None:
    assert takes(TITAN, selector=(("causeway.dev/site", "rack-a"),))
    assert takes(TITAN, affinity=(term("causeway.dev/site", "In", "rack-b"),))
    both = NodeTerm((*term(GPU_MODEL, "In", "v100").labels, *term("disk", "Exists").labels))
    assert takes(V100, affinity=(both,))
    assert not takes(TITAN, affinity=(both,))


def test_taints_are_tolerated_by_the_work_or_by_the_flavor() -> None:
    taint = Taint("lab", "x")
    tainted = structs.replace(TITAN, taints=(taint,))
    assert not takes(tainted)
    assert takes(tainted, tolerations=(Toleration("lab", "Exists"),))
    assert takes(structs.replace(tainted, tolerations=(Toleration("lab", "Exists"),)))
