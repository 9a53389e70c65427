"""What a client makes of what an autoscaler publishes: its own words, and forms older or newer."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from autoscaler.make import NOW, config, group, shape, snapshot, titans
from client.test_offer import job, offer

from causeway.cluster import availability as client
from causeway.cluster.availability import Availability, Outlook
from causeway.cluster.fit import fit
from causeway.cluster.offer import Machine
from causeway.commands.gpus import Row, listed
from causeway.commands.waiting import Wait, described
from causeway.workers import workers_of
from infra.autoscaler.kube import publishing
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import GPU, Flavor, GangSet, Holding, Queued, Queues
from infra.autoscaler.reporting import availability
from infra.catalogue.labels import GPU_MODEL
from infra.render.kubernetes import autoscaler as rendered

WEST = group(pool="standard")
OF = config(WEST)
TITANS = "physical.titan-x-pascal"
AT = datetime.fromtimestamp(NOW, UTC)


def written(*waiting: Queued, free: int = 8) -> dict[str, Any]:
    """As the autoscaler has it: eight GPUs of quota, of which all but ``free`` are held for an hour."""
    held = Holding("cohort/all", ((TITANS, GPU, 8 - free),), NOW, True, 3600.0)
    queues = Queues(
        waiting, (held,), {"cohort/all": {TITANS: {GPU: 8}}}, {"vision": "cohort/all"}, {"vision": (TITANS,)}
    )
    memory = Memory(backoffs={WEST.name: Backoff("capacity", "none", NOW, NOW, NOW + 300, 1)})
    view = state_builder.build(snapshot(nodes=titans(2), of=OF), memory, OF, NOW)
    flavors = {TITANS: Flavor(TITANS, labels={GPU_MODEL: "titan-x-pascal"})}
    values, _ = availability.content(view, queues, flavors, memory, OF, {})
    found: dict[str, Any] = json.loads(availability.text({**values, "written": availability.stamp(NOW)}))
    return found


def waiting(name: str, gpus: int, priority: int = 0) -> Queued:
    sets = (GangSet(shape(gpus=gpus, cpu=0, memory=0), 1),)
    return Queued(f"user-ada/x-{name}", "user-ada", "JobSet", name, "vision", priority, NOW, 600.0, sets)


def read(*given: Queued, free: int = 8, **more: Any) -> Availability:
    return client.parse({**written(*given, free=free), **more}, AT)


def test_both_sides_speak_of_the_same_version_and_the_same_place() -> None:
    assert availability.VERSION == client.VERSION
    assert publishing.NAME == rendered.AVAILABILITY
    assert client._PATH.endswith(f"/{publishing.NAME}")
    assert read().note == ""


def test_a_newer_form_is_read_and_said_and_an_old_content_is_said_to_be_old() -> None:
    assert "newer" in read(version=2, something="new").note
    late = client.parse(written(), AT + timedelta(hours=1))
    assert "since" in late.note
    with pytest.raises(KeyError):
        client.parse({"version": 1})


def test_the_place_of_a_run() -> None:
    found = read(waiting("first-1", 8), waiting("second-1", 4), free=4)
    place = found.place("user-ada", "second-1")
    assert place is not None
    assert (place.position, place.ahead, place.gpus_ahead) == (2, 1, 8)
    # It fits beside what runs, and so passes the first.
    assert place.latest_start == AT
    first = found.place("user-ada", "first-1")
    assert first is not None
    assert first.latest_start == AT + timedelta(seconds=3600)
    assert found.place("user-alan", "first-1") is None


def test_what_waits_in_words() -> None:
    found = read(waiting("first-1", 8), waiting("second-1", 8), waiting("huge-1", 99), free=4)

    def lines(name: str) -> str:
        return "\n".join(Wait(found.place("user-ada", name), autoscaler=["because"]).lines())

    for fact in ("position 2", "8 GPUs", client.clock(AT + timedelta(seconds=4200))):
        assert fact in lines("second-1")
    assert "because" in lines("huge-1")


def test_where_there_is_no_capacity_in_words() -> None:
    (bar,) = read().no_capacity
    for fact in ("standard", "us-west-2", client.clock(AT + timedelta(seconds=300))):
        assert fact in str(bar)


def outlook(found: Availability, priority: int | None = 0, **fields: Any) -> Outlook:
    made = job(priority="low", **fields)
    of = offer()
    return client.outlook(found, [fit(made, each, of) for each in workers_of(made)], "vision", priority)


def test_what_a_run_would_find() -> None:
    assert outlook(read(), gpus=4) == Outlook(0, 0, AT, at_once=True)
    busy = read(waiting("a-1", 8, 100), waiting("b-1", 2, -5), free=0)
    seen = outlook(busy, gpus=4)
    assert (seen.ahead, seen.gpus_ahead, seen.at_once) == (1, 8, False)
    assert seen.starts is not None
    assert seen.starts >= AT + timedelta(seconds=3600)
    assert outlook(busy, None, gpus=4).ahead == 2
    assert "8 GPUs" in described(seen)


def test_only_what_is_known_is_said() -> None:
    assert outlook(read(), gpus=4, nodes=4).starts is None
    assert outlook(read(queue=None), gpus=4).ahead is None
    assert outlook(read(queue_cut=5), gpus=4).ahead is None
    roles = {"chief": {"count": 1, "gpus": 1}, "worker": {"count": 1, "gpus": 1}}
    assert outlook(read(), roles=roles).starts is None
    assert described(Outlook(None, 0, None, at_once=False)) == ""


def rows(found: Availability | None) -> dict[tuple[str, str | None, str], Row]:
    return {(row.site, row.pool, row.model): row for row in listed(offer(), found)}


def test_gpus_with_what_is_free_of_them() -> None:
    found = rows(read())
    own = found["rack-a", None, "titan-x-pascal"]
    assert (own.ready, own.free, own.largest, own.price) == (2, 8, 4, 0.0)
    machines: list[Machine] = [each for each in offer().machines if each.gpus]
    assert {(each.site, each.pool) for each in machines} == {(site, pool) for site, pool, _ in found}
    pools = [row for row in found.values() if row.pool]
    assert all(row.ready == row.free == 0 for row in pools)
    assert all(row.price for row in pools)


def test_gpus_of_a_cluster_that_does_not_say_what_is_free() -> None:
    assert all(row.free is None and row.ready is None for row in rows(None).values())


def test_a_pool_without_capacity_says_so() -> None:
    of = offer()
    pool = next(each for each in of.machines if each.gpus and each.pool)
    bar = {"site": pool.site, "pool": pool.pool, "until": None, "why": "no capacity"}
    found = rows(read(no_capacity=[bar]))
    barred = [(row.site, row.pool) for row in found.values() if row.no_capacity]
    assert (pool.site, pool.pool) in barred
    assert set(barred) == {(pool.site, pool.pool)}
