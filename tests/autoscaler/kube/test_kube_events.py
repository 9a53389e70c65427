"""Events at pods and nodes: said once, kept alive, and never too many."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler.apiserver import ApiServer, Object
from autoscaler.kube.clusters import Cluster, fresh

from infra.autoscaler.kube.events import Events
from infra.autoscaler.reporting.pod_events import News

EVENTS = "/apis/events.k8s.io/v1/events"


class Clock:
    at = 1_800_000_000.25

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


NOTE = "waits for 8 x A100: us-west-2 has no capacity"


def about(uid: str, note: str = NOTE, **more: Any) -> News:
    return News("Pod", "default", "train-0", uid, more.pop("reason", "WaitsForCapacity"), note, **more)


def told(cluster: Cluster, uid: str) -> list[Object]:
    found = cluster.get("/apis/events.k8s.io/v1/events")
    assert found is not None
    return sorted(
        (each for each in found["items"] if each["regarding"].get("uid") == uid),
        key=lambda each: str(each["eventTime"]),
    )


def events(cluster: Cluster, clock: Clock, **more: Any) -> Events:
    return Events(cluster.client, "autoscaler-1", now=clock, **more)


def test_36_a_pod_is_told_once_why_it_waits(cluster: Cluster, clock: Clock) -> None:
    uid = fresh("uid")
    teller = events(cluster, clock)
    for _ in range(5):
        assert teller.tell([about(uid)]) == ""
        clock.at += 10
    (event,) = told(cluster, uid)
    assert event["note"] == NOTE
    assert event["reason"] == "WaitsForCapacity"
    assert event["type"] == "Normal"
    assert event["regarding"]["name"] == "train-0"
    assert event["reportingController"] == "causeway.dev/autoscaler"
    assert event.get("series") is None


def test_what_stays_true_is_kept_alive(cluster: Cluster, clock: Clock) -> None:
    """The server forgets events after an hour."""
    uid = fresh("uid")
    teller = events(cluster, clock)
    for _ in range(3):
        assert teller.tell([about(uid)]) == ""
        clock.at += 1801
    (event,) = told(cluster, uid)
    assert event["series"]["count"] == 3


def test_what_the_server_has_forgotten_is_told_anew(server: ApiServer, near: Cluster, clock: Clock) -> None:
    teller = events(near, clock)
    teller.tell([about("u")])
    (event,) = told(near, "u")
    server.remove(EVENTS, event["metadata"]["name"], "default")
    clock.at += 1801
    assert teller.tell([about("u")]) == ""
    assert len(told(near, "u")) == 1


def test_new_words_wait_new_reasons_do_not(cluster: Cluster, clock: Clock) -> None:
    uid = fresh("uid")
    teller = events(cluster, clock)
    teller.tell([about(uid, "until 14:05")])
    clock.at += 10
    teller.tell([about(uid, "until 14:06")])
    assert len(told(cluster, uid)) == 1
    teller.tell([about(uid, "a machine starts", reason="Starting"), about(uid, "until 14:06")])
    assert [each["reason"] for each in told(cluster, uid)] == ["WaitsForCapacity", "Starting"]
    clock.at += 300
    teller.tell([about(uid, "until 14:10")])
    assert [each["note"] for each in told(cluster, uid)] == ["until 14:05", "a machine starts", "until 14:10"]


def test_nodes_have_theirs_too(cluster: Cluster, clock: Clock) -> None:
    uid = fresh("uid")
    news = News("Node", "", "n" * 253, uid, "ScaleIn", "is idle", type="Warning")
    assert events(cluster, clock).tell([news]) == ""
    (event,) = told(cluster, uid)
    assert event["metadata"]["namespace"] == "default"
    assert event["type"] == "Warning"


def test_long_words_are_cut_where_the_api_ends(cluster: Cluster, clock: Clock) -> None:
    uid = fresh("uid")
    assert events(cluster, clock).tell([about(uid, "ü" * 2000)]) == ""
    (event,) = told(cluster, uid)
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ü…")


def test_two_reasons_at_one_moment(cluster: Cluster, clock: Clock) -> None:
    uid = fresh("uid")
    assert events(cluster, clock).tell([about(uid, reason="One"), about(uid, reason="Two")]) == ""
    assert len(told(cluster, uid)) == 2


def test_a_flood_comes_in_portions(server: ApiServer, near: Cluster, clock: Clock) -> None:
    teller = events(near, clock, budget=20)
    news = [about(f"u{each}") for each in range(50)]
    counts = []
    for _ in range(4):
        teller.tell(news)
        counts.append(server.count("POST", "events"))
        clock.at += 10
    assert counts == [20, 40, 50, 50]


def test_a_refusal_for_one_object_is_its_own(server: ApiServer, near: Cluster, clock: Clock) -> None:
    server.fail("POST", "events", code=422)
    teller = events(near, clock)
    assert teller.tell([about("a"), about("b")]) == ""
    teller.tell([about("a"), about("b")])
    assert server.count("POST", "events") == 2
    assert len(told(near, "b")) == 1


def test_a_lost_answer_is_no_second_event(server: ApiServer, near: Cluster, clock: Clock) -> None:
    teller = events(near, clock)
    server.fail("POST", "events", how="late")
    assert teller.tell([about("u")]) == ""
    clock.at += 1801
    assert teller.tell([about("u")]) == ""
    (event,) = told(near, "u")
    assert event["series"]["count"] == 2


def test_words_that_are_no_text_stop_nothing(near: Cluster, clock: Clock) -> None:
    assert events(near, clock).tell([about("a", "\udcff"), about("b")]) == ""
    assert (told(near, "a"), len(told(near, "b"))) == ([], 1)


def test_who_may_not_tell_asks_seldom(server: ApiServer, near: Cluster, clock: Clock) -> None:
    server.fail("POST", "events", code=403, times=10**6)
    teller = events(near, clock)
    assert "(403)" in teller.tell([about("a"), about("b")])
    for _ in range(10):
        clock.at += 10
        assert teller.tell([about("a"), about("b")]) == ""
    assert server.count("POST", "events") == 1
    clock.at += 300
    assert "(403)" in teller.tell([about("a")])


def test_an_api_that_is_away_ends_the_round(server: ApiServer, near: Cluster, clock: Clock) -> None:
    server.fail("POST", "events", how="cut", times=2)
    teller = events(near, clock)
    assert teller.tell([about("a"), about("b")]) != ""
    assert teller.tell([about("a"), about("b")]) == ""
    assert len(told(near, "a")) == len(told(near, "b")) == 1


def test_35_nothing_is_told_without_the_lease(server: ApiServer, near: Cluster, clock: Clock) -> None:
    assert events(near, clock, may=lambda: False).tell([about("a")]) == ""
    assert server.count("POST", "events") == 0


def test_what_is_kept_in_mind_has_bounds(near: Cluster, clock: Clock) -> None:
    teller = events(near, clock, most=3)
    for each in range(5):
        teller.tell([about(f"u{each}")])
        clock.at += 1
    assert [uid for uid, _ in teller._told] == ["u2", "u3", "u4"]
    clock.at += 3601
    teller.tell([])
    assert teller._told == {}
