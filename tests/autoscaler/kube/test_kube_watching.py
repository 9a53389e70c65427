"""Caches that follow the API, and what they tell of it while they can't."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from autoscaler.apiserver import WORKLOADS, ApiServer, Object
from autoscaler.kube.clusters import FAST, PODS, Cluster, Plain, even, fresh
from kube.plane import Plane
from waiting import until

from infra.autoscaler.kube import watching
from infra.autoscaler.kube.kinds import KINDS, Kind
from infra.autoscaler.kube.watching import Parts, Timing, Watcher

BY_NAME = {kind.name: kind for kind in KINDS}
NODE, POD, JOB, WORKLOAD = (BY_NAME[name] for name in ("Node", "Pod", "Job", "Workload"))


@contextmanager
def watched(
    cluster: Cluster, *kinds: Kind, timing: Timing = FAST, ready: bool = True, **more: Any
) -> Iterator[Watcher]:
    watcher = Watcher(cluster.client, Plain(), chance=even, kinds=kinds or KINDS, timing=timing, **more)
    watcher.start()
    try:
        assert watcher.wait(60 if ready else 0) is ready
        yield watcher
    finally:
        watcher.stop()


def names(watcher: Watcher, kind: str) -> set[str]:
    return set(watcher.parts().objects[kind])


def node(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}}


def pods(count: int) -> list[Object]:
    return [{"metadata": {"name": f"p{at}", "namespace": "default"}} for at in range(count)]


NODES = "/api/v1/nodes"


def test_what_is_there_and_what_becomes_of_it(cluster: Cluster) -> None:
    first, second = cluster.node()["metadata"]["name"], fresh("node")
    with watched(cluster, NODE) as watcher:
        assert first in names(watcher, "Node")
        cluster.create("/api/v1/nodes", {"metadata": {"name": second}})
        until(lambda: second in names(watcher, "Node"))
        cluster.patch(f"{NODES}/{second}", {"metadata": {"labels": {"a": "b"}}})
        until(lambda: watcher.parts().objects["Node"][second]["metadata"].get("labels") == {"a": "b"})
        cluster.delete(f"{NODES}/{second}")
        until(lambda: second not in names(watcher, "Node"))
        assert first in names(watcher, "Node")
        until(lambda: watcher.healthy and watcher.errors == {})


def test_pods_that_are_over_are_left_out(cluster: Cluster) -> None:
    runs, over = (cluster.pod(phase=phase)["metadata"]["name"] for phase in ("Running", "Succeeded"))
    with watched(cluster, POD) as watcher:
        found = names(watcher, "Pod")
        assert f"default/{runs}" in found
        assert f"default/{over}" not in found
        cluster.patch(f"{PODS}/{runs}/status", {"status": {"phase": "Failed"}})
        until(lambda: f"default/{runs}" not in names(watcher, "Pod"))


def test_all_kinds_at_once_and_those_that_a_cluster_has_not(cluster: Cluster) -> None:
    with watched(cluster) as watcher:
        until(lambda: watcher.parts().errors == {})  # a busy machine answers one late
        parts = watcher.parts()
        assert set(parts.objects) == {kind.name for kind in KINDS}
        assert parts.objects["Workload"] == {}
        assert watcher.path("Workload") is None
        assert watcher.path("Node") == NODES
        until(lambda: watcher.healthy)


def test_long_lists_come_in_pages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {cluster.node()["metadata"]["name"] for _ in range(5)}
    monkeypatch.setattr(watching, "PAGE", 2)
    with watched(cluster, NODE) as watcher:
        assert made <= names(watcher, "Node")


def test_pages_that_expire_are_fetched_all_at_once(
    server: ApiServer, near: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Plain):
        def list(self, kind: str, body: bytes) -> Any:
            if server.get(NODES, "n0"):
                server.remove(NODES, "n0")  # on the first page, and gone before the second
                server.compact()
            return super().list(kind, body)

    for each in range(6):
        server.put(NODES, node(f"n{each}"))
    monkeypatch.setattr(watching, "PAGE", 2)
    watcher = Watcher(near.client, Slow(), chance=even, kinds=[NODE], timing=FAST)
    watcher.start()
    assert watcher.wait(60)
    assert names(watcher, "Node") == {"n1", "n2", "n3", "n4", "n5"}
    watcher.stop()


def test_parts_are_the_readers_own(server: ApiServer, near: Cluster) -> None:
    server.put(NODES, node("a"))
    with watched(near, NODE) as watcher:
        watcher.parts().objects["Node"].clear()
        assert names(watcher, "Node") == {"a"}


def test_one_bad_object_is_left_out_and_told(server: ApiServer, near: Cluster) -> None:
    server.put(NODES, node("a"))
    server.put(NODES, node("b", bad="1"))
    with watched(near, NODE) as watcher:
        assert names(watcher, "Node") == {"a"}
        assert watcher.parts().faults == {"Node/b": "bad"}
        server.put(NODES, node("a", bad="1"))
        server.put(NODES, node("b"))
        until(lambda: watcher.parts().faults == {"Node/a": "bad"})
        assert names(watcher, "Node") == {"b"}
        server.remove(NODES, "a")
        until(lambda: watcher.parts().faults == {})


def _cut(server: ApiServer) -> None:
    server.cut_watches()


def _cut_and_compacted(server: ApiServer) -> None:
    """What it last saw is too old: the watch opens, and says so (410 in an event)."""
    server.put(NODES, node("while-away"))
    server.fail("GET", "watch=1", code=503)
    server.cut_watches()
    server.compact()


def _too_old_at_once(server: ApiServer) -> None:
    """The same as the answer's own code, as some servers have it."""
    server.fail("GET", "watch=1", code=410)
    server.cut_watches()


def _broken_line(server: ApiServer) -> None:
    server.fail("GET", "watch=1", how="break", times=2)
    server.cut_watches()


def _busy(server: ApiServer) -> None:
    server.fail("GET", "nodes", code=429, headers={"Retry-After": "0"}, times=3)
    server.cut_watches()


def _ill(server: ApiServer) -> None:
    server.fail("GET", "nodes", code=500, times=6)
    server.cut_watches()


def _nonsense(server: ApiServer) -> None:
    server.fail("GET", "nodes", code=200, body=b'{"type": 1}\nx\n', times=2)
    server.cut_watches()


def _forbidden_for_a_while(server: ApiServer) -> None:
    server.fail("GET", "nodes", code=403, times=2)
    server.cut_watches()


def _unknown_for_a_while(server: ApiServer) -> None:
    """A server that starts may not know a kind yet."""
    server.fail("GET", "nodes", code=404, times=2)
    server.cut_watches()


def _hanging(server: ApiServer) -> None:
    server.fail("GET", "watch=1", how="hang")
    server.cut_watches()


def _restarted(server: ApiServer) -> None:
    server.down()
    server.up()


@pytest.mark.parametrize(
    "trouble",
    [
        _cut, _cut_and_compacted, _too_old_at_once, _broken_line, _busy, _ill, _nonsense,
        _forbidden_for_a_while, _unknown_for_a_while, _hanging, _restarted,
    ],
)  # fmt: skip
def test_it_follows_through_all_kinds_of_trouble(
    server: ApiServer, near: Cluster, trouble: Callable[[ApiServer], None]
) -> None:
    server.put(NODES, node("before"))
    server.put(NODES, node("leaves"))
    with watched(near, NODE, POD) as watcher:
        trouble(server)
        server.put(NODES, node("after"))
        server.remove(NODES, "leaves")
        until(lambda: names(watcher, "Node") - {"while-away"} == {"before", "after"})
        until(lambda: watcher.errors == {} and watcher.healthy)


def test_a_quiet_watch_goes_on_by_bookmarks(server: ApiServer, near: Cluster) -> None:
    """Nothing of its own kind happens for long; it need not begin anew though versions are forgotten."""
    server.put(NODES, node("a"))
    with watched(near, NODE, timing=replace(FAST, silence=60)) as watcher:
        for each in pods(50):
            server.put("/api/v1/pods", each)
        time.sleep(3 * server.bookmark)
        server.compact()
        server.cut_watches()
        server.put(NODES, node("b"))
        until(lambda: names(watcher, "Node") == {"a", "b"})
    assert server.count("GET", "limit=") == 1


def test_a_silent_watch_is_begun_anew(server: ApiServer, near: Cluster) -> None:
    """Nothing happens, or nobody is there any more: who asks again knows. That is no trouble."""
    with watched(near, NODE) as watcher:
        until(lambda: server.count("GET", "watch=1") > 5)
        assert watcher.errors == {}
        server.put(NODES, node("a"))
        until(lambda: names(watcher, "Node") == {"a"})
    assert server.count("GET", "limit=") == 1


def test_a_silent_watch_of_nobody_is_trouble(server: ApiServer, near: Cluster) -> None:
    """The connection stands, but nobody answers any more, as behind a balancer whose server has gone."""
    with watched(near, NODE) as watcher:
        until(lambda: watcher.healthy)
        server.fail("GET", "nodes", how="hang", times=10**6)
        until(lambda: not watcher.healthy and "kube/nodes" in watcher.errors)


def asked(server: ApiServer) -> list[str]:
    return ["watch" if "watch=1" in path else "list" for _, path in server.requests]


def test_a_version_that_is_too_old_is_listed_anew_at_once(server: ApiServer, near: Cluster) -> None:
    server.put(NODES, node("a"))
    with watched(near, NODE, timing=replace(FAST, first=0.5, most=0.5, silence=3600)) as watcher:
        until(lambda: asked(server) == ["list", "watch"])
        server.down()
        server.put(NODES, node("b"))
        server.compact()
        server.up()
        until(lambda: names(watcher, "Node") == {"a", "b"})
        until(lambda: asked(server) == ["list", "watch", "watch", "list", "watch"])


def test_a_version_that_no_watch_goes_on_from_is_given_up(server: ApiServer, near: Cluster) -> None:
    """A store that was restored is behind what we know: the server waits for a version that never comes."""
    server.put(NODES, node("a"))
    with watched(near, NODE) as watcher:
        version = watcher.parts().objects["Node"]["a"]["metadata"]["resourceVersion"]
        server.fail("GET", f"resourceVersion={version}", code=504, times=10**6)
        server.cut_watches()
        until(lambda: server.count("GET", f"resourceVersion={version}") > 2)
        server.put(NODES, node("b"))
        until(lambda: names(watcher, "Node") == {"a", "b"})


def test_age_counts_from_the_end_of_a_watch(server: ApiServer, near: Cluster) -> None:
    """However long nothing had happened by then."""
    at = 1000.0
    with watched(near, NODE, timing=replace(FAST, silence=3600), clock=lambda: at) as watcher:
        until(lambda: watcher.path("Node") and watcher._watched[0].open)
        at += 500
        assert watcher.healthy
        server.down()
        until(lambda: "0 s old" in watcher.errors.get("kube/nodes", ""))
        assert watcher.healthy
        at += 30
        assert "30 s old" in watcher.errors["kube/nodes"]
        assert not watcher.healthy


def test_an_api_that_is_away_leaves_what_is_known(server: ApiServer, near: Cluster) -> None:
    server.put(NODES, node("a"))
    with watched(near, NODE, WORKLOAD) as watcher:
        until(lambda: watcher.healthy)
        server.down()
        until(lambda: not watcher.healthy)
        assert names(watcher, "Node") == {"a"}
        until(lambda: "kube/nodes" in watcher.errors)
        assert watcher.ready
        server.up()
        server.put(NODES, node("b"))
        until(lambda: names(watcher, "Node") == {"a", "b"} and watcher.healthy)


def test_a_real_server_that_is_restarted(plane: Plane, real: Cluster) -> None:
    """It has forgotten all versions but the newest, and its own kinds for a moment."""
    first = real.node()["metadata"]["name"]
    with watched(real, timing=replace(FAST, silence=2, stale=2)) as watcher:
        until(lambda: watcher.healthy)
        plane.stop()
        until(lambda: not watcher.healthy and "kube/nodes" in watcher.errors)
        assert first in names(watcher, "Node")
        plane.start()
        second = real.node()["metadata"]["name"]
        until(lambda: {first, second} <= names(watcher, "Node"))
        until(lambda: watcher.healthy and watcher.errors == {})


def test_an_api_that_never_answers(server: ApiServer, near: Cluster) -> None:
    server.down()
    with watched(near, NODE, ready=False) as watcher:
        until(lambda: "kube/nodes" in watcher.errors)
        assert not watcher.ready
        assert not watcher.healthy
        assert watcher.parts().objects == {"Node": {}}


def test_a_kind_that_is_brought_later_is_seen(server: ApiServer, near: Cluster) -> None:
    with watched(near, NODE, WORKLOAD) as watcher:
        assert watcher.parts().errors == {}
        server.resources[WORKLOADS] = "Workload"  # the older of two versions
        server.put(WORKLOADS, {"metadata": {"name": "w", "namespace": "default"}})
        until(lambda: names(watcher, "Workload") == {"default/w"})
        assert watcher.path("Workload") == WORKLOADS


def test_a_kind_that_is_taken_away_is_forgotten_after_a_while(server: ApiServer, near: Cluster) -> None:
    server.resources[WORKLOADS] = "Workload"
    server.put(WORKLOADS, {"metadata": {"name": "w", "namespace": "default"}})
    with watched(near, NODE, WORKLOAD) as watcher:
        del server.resources[WORKLOADS]
        server.cut_watches()
        before = server.count("GET", "workloads")
        until(lambda: server.count("GET", "workloads") >= before + 2)
        assert names(watcher, "Workload") == {"default/w"}
        until(lambda: names(watcher, "Workload") == set())
        assert watcher.parts().errors == {}


def test_a_kind_that_is_forbidden_stops_nothing(server: ApiServer, near: Cluster) -> None:
    server.fail("GET", "workloads", code=403, times=10**6)
    with watched(near, NODE, WORKLOAD) as watcher:
        until(lambda: watcher.healthy)
        assert list(watcher.errors) == ["kube/workloads"]
        assert "(403)" in watcher.errors["kube/workloads"]


def test_a_kind_that_fails_at_first_is_waited_for(server: ApiServer, near: Cluster) -> None:
    """A gang whose object is not seen would be taken for single pods. For ever it is not waited for."""
    server.resources[WORKLOADS] = "Workload"
    server.put(WORKLOADS, {"metadata": {"name": "w", "namespace": "default"}})
    fault = server.fail("GET", "workloads", code=500, times=10**6)
    patient = replace(FAST, grace=3600)
    with watched(near, NODE, WORKLOAD, timing=patient, ready=False) as watcher:
        until(lambda: "kube/workloads" in watcher.errors and names(watcher, "Node") == set())
        assert not watcher.ready
        fault.times = 0
        assert watcher.wait(60)
        assert names(watcher, "Workload") == {"default/w"}
    fault.times = 10**6
    with watched(near, NODE, WORKLOAD) as watcher:
        assert list(watcher.errors) == ["kube/workloads"]


def test_a_decoder_that_fails_ends_no_thread(server: ApiServer, near: Cluster) -> None:
    class Moody(Plain):
        moods = 3

        def list(self, kind: str, body: bytes) -> Any:
            self.moods -= 1
            if self.moods >= 0:
                raise RuntimeError("not today")
            return super().list(kind, body)

    watcher = Watcher(near.client, Moody(), chance=even, kinds=[NODE], timing=FAST)
    watcher.start()
    until(lambda: watcher.healthy)
    watcher.stop()


def test_it_tries_less_often_the_longer_it_fails(near: Cluster) -> None:
    """By chance up to half as long, so that those who failed together do not come back together."""
    chances = iter([0.0, 0.5, 1.0] * 7)
    watcher = Watcher(near.client, Plain(), chance=lambda: next(chances), timing=Timing(first=1, most=30))
    for failures, longest in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (100, 30)):
        waits = [watcher._pause(failures) for _ in range(3)]
        assert waits == [longest / 2, longest * 3 / 4, longest]


def test_stopping_wakes_watches_that_wait(server: ApiServer, near: Cluster) -> None:
    slow = Timing(silence=3600)
    server.bookmark = 3600
    with watched(near, NODE, POD, timing=slow) as watcher:
        until(lambda: server.count("GET", "watch=1") == 2)
    until(lambda: not any(thread.is_alive() for thread in watcher._threads))


def test_copies_are_of_one_moment(server: ApiServer, near: Cluster) -> None:
    """No copy has what was made later without what was made before."""
    seen: list[Parts] = []
    with watched(near, NODE) as watcher:
        for each in range(30):
            server.put(NODES, node(f"n{each:02}"))
            seen.append(watcher.parts())
        until(lambda: len(names(watcher, "Node")) == 30)
    for parts in seen:
        found = sorted(parts.objects["Node"])
        assert found == [f"n{each:02}" for each in range(len(found))]
