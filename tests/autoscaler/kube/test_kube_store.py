"""What is remembered is there after a restart, and is nobody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autoscaler.apiserver import ApiServer
from autoscaler.kube.clusters import Cluster, fresh

from infra.autoscaler import memory
from infra.autoscaler.kube.client import KubeError
from infra.autoscaler.kube.store import KEY, NAME, OvertakenError, Store, fitting
from infra.autoscaler.memory import Backoff, Memory, Resize

SOME = Memory(
    backoffs={"gpu": Backoff("capacity", "none left", 1, 2, 3, 1)},
    resizes={"gpu": Resize(1.5, 0, 4)},
    idle={"node-1": 10.0},
)
MORE = Memory(idle={"node-1": 10.0, "node-2": 20.0})


def path(name: str) -> str:
    return f"/api/v1/namespaces/default/configmaps/{name}"


@pytest.fixture
def name() -> str:
    return fresh("memory")


def test_it_is_there_after_a_restart(cluster: Cluster, name: str) -> None:
    first = Store(cluster.client, "default", name=name)
    assert first.load() == Memory()
    first.save(SOME)
    first.save(MORE)
    assert Store(cluster.client, "default", name=name).load() == MORE


def test_it_can_be_saved_unread(cluster: Cluster, name: str) -> None:
    Store(cluster.client, "default", name=name).save(SOME)
    Store(cluster.client, "default", name=name).save(MORE)
    assert Store(cluster.client, "default", name=name).load() == MORE


def test_two_writers_find_out(cluster: Cluster, name: str) -> None:
    first, second = (Store(cluster.client, "default", name=name) for _ in range(2))
    first.save(SOME)
    second.load()
    second.save(MORE)
    with pytest.raises(OvertakenError, match="two autoscalers"):
        first.save(Memory())
    assert Store(cluster.client, "default", name=name).load() == MORE
    assert first.load() == MORE
    first.save(SOME)


def test_two_first_writers_find_out(cluster: Cluster, name: str) -> None:
    first, second = (Store(cluster.client, "default", name=name) for _ in range(2))
    first.load()
    second.load()
    first.save(SOME)
    with pytest.raises(OvertakenError):
        second.save(MORE)


def test_labels_of_others_are_no_reason_to_stop(cluster: Cluster, name: str) -> None:
    store = Store(cluster.client, "default", name=name)
    store.save(SOME)
    cluster.patch(path(name), {"metadata": {"labels": {"theirs": "1"}}, "data": {"note": "theirs"}})
    store.save(MORE)
    kept = cluster.get(path(name))
    assert kept is not None
    assert kept["metadata"]["labels"] == {"theirs": "1"}
    assert kept["data"]["note"] == "theirs"
    assert memory.load(kept["data"][KEY]) == MORE


def test_one_that_is_deleted_is_made_again(cluster: Cluster, name: str) -> None:
    """Somebody wants us to forget; what we still know is not less true for it."""
    store = Store(cluster.client, "default", name=name)
    store.save(SOME)
    cluster.delete(path(name))
    with pytest.raises(OvertakenError):
        store.save(MORE)
    assert store.load() == Memory()
    store.save(MORE)
    assert Store(cluster.client, "default", name=name).load() == MORE


def test_a_lost_answer_is_no_conflict(server: ApiServer, near: Cluster) -> None:
    store = Store(near.client, "default")
    store.save(SOME)
    server.fail("PATCH", "configmaps", how="late")
    store.save(MORE)
    assert Store(near.client, "default").load() == MORE


def test_nothing_new_is_not_written(server: ApiServer, near: Cluster) -> None:
    store = Store(near.client, "default")
    store.save(SOME)
    before = len(server.requests)
    store.save(SOME)
    assert len(server.requests) == before


@pytest.mark.parametrize("text", ["", "{", '{"version": "x"}', "[]"])
def test_what_makes_no_sense_is_an_empty_memory(server: ApiServer, near: Cluster, text: str) -> None:
    server.put(
        "/api/v1/configmaps", {"metadata": {"name": NAME, "namespace": "default"}, "data": {KEY: text}}
    )
    store = Store(near.client, "default")
    assert store.load() == Memory()
    store.save(SOME)
    assert Store(near.client, "default").load() == SOME


def test_an_api_that_is_away_is_told(server: ApiServer, near: Cluster) -> None:
    store = Store(near.client, "default")
    store.save(SOME)
    server.fail("*", "configmaps", code=503, times=10**6, headers={"Retry-After": "600"})
    with pytest.raises(KubeError):
        store.save(MORE)
    with pytest.raises(KubeError):
        store.load()


def test_more_than_a_config_map_takes(cluster: Cluster, name: str) -> None:
    """What can best be done without is left out."""
    broken = {f"machine-{number}": 1.0 for number in range(60_000)}
    store = Store(cluster.client, "default", name=name)
    big: dict[str, Any] = {**json.loads(memory.dump(SOME)), "broken": broken}
    store.save(memory.load(json.dumps(big)))
    assert Store(cluster.client, "default", name=name).load() == SOME


def test_what_goes_first() -> None:
    both = memory.load(
        json.dumps({**json.loads(memory.dump(SOME)), "broken": {"x" * 48: 1}, "boots": {"i": 1}})
    )
    full = len(memory.dump(both))
    assert memory.load(fitting(both, full)) == both
    without = memory.load(fitting(both, full - 1))
    assert (without.broken, without.boots, without.idle) == ({}, {"i": 1}, SOME.idle)
    least = memory.load(fitting(both, 220))
    assert (least.idle, least.resizes) == ({}, SOME.resizes)
