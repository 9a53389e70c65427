"""One writer: nobody begins before another has surely ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from autoscaler.apiserver import ApiServer
from autoscaler.kube.clusters import Cluster, Object, even, fresh
from waiting import until

from infra.autoscaler.kube.lease import Lease, Terms, identity, since_boot

TERMS = Terms(duration=30, deadline=20, retry=4)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@dataclass
class Clock:
    """A machine's: what it counts, and what it believes the time to be."""

    at: float = 1000.0
    skew: float = 0.0

    def __call__(self) -> float:
        return self.at

    def now(self) -> float:
        return 1_800_000_000 + self.at + self.skew


Make = Callable[..., Lease]


@pytest.fixture
def name() -> str:
    return fresh("lease")


def lease(cluster: Cluster, name: str, holder: str, clock: Clock) -> Lease:
    return Lease(
        cluster.client, "default", name, holder, chance=even, terms=TERMS, clock=clock, now=clock.now
    )


def stored(cluster: Cluster, name: str) -> Object:
    found = cluster.get(f"{LEASES}/{name}")
    assert found is not None
    spec: Object = found["spec"]
    return spec


def test_35_a_single_writer(cluster: Cluster, name: str) -> None:
    """The second waits for the first one's whole term after its last renewal, by its own clock."""
    ours, theirs = Clock(), Clock(at=5.0, skew=-86400)
    first, second = lease(cluster, name, "first", ours), lease(cluster, name, "second", theirs)
    assert not first.held()
    assert first.step()
    assert first.held()
    assert first.remaining() == 20
    assert not second.step()
    assert second.other == "first"
    for _ in range(30):  # two minutes of renewals
        ours.at, theirs.at = ours.at + 4, theirs.at + 4
        assert first.step()
        assert not second.step()
    ours.at, theirs.at = ours.at + 19, theirs.at + 19  # the first one is stopped, or cut off
    assert first.held()
    ours.at, theirs.at = ours.at + 1, theirs.at + 1
    assert not first.held()
    assert not second.step()
    theirs.at += 9.9
    assert not second.step()
    theirs.at += 0.2
    assert second.step()
    assert stored(cluster, name)["holderIdentity"] == "second"
    assert stored(cluster, name)["leaseTransitions"] == 1
    assert not first.step()
    assert first.other == "second"


def test_35_whoever_is_cut_off_stops_before_another_begins(server: ApiServer, near: Cluster) -> None:
    ours, theirs = Clock(), Clock()
    first, second = lease(near, "x", "first", ours), lease(near, "x", "second", theirs)
    assert first.step()
    assert not second.step()
    server.fail("*", "leases", how="cut", times=10**6)
    ours.at += 15
    assert first.step()  # within its deadline it goes on
    assert first.problem
    ours.at += 5
    assert not first.step()
    assert not first.held()


def test_35_time_that_a_renewal_takes_counts(server: ApiServer, near: Cluster) -> None:
    """The term of others begins when the server writes, which is after we began to ask."""
    clock = Clock()
    found = lease(near, "x", "first", clock)
    plain = found._write

    def slow(*what: object) -> None:
        clock.at += 7
        plain(*what)  # type: ignore[arg-type]

    found._write = slow  # type: ignore[method-assign, assignment]
    assert found.step()
    assert found.remaining() == 13


def test_a_lost_answer_is_no_lost_lease(server: ApiServer, near: Cluster) -> None:
    clock = Clock()
    found = lease(near, "x", "first", clock)
    assert found.step()
    server.fail("PATCH", "leases", how="late")
    clock.at += 4
    assert found.step()
    assert found.remaining() == 16  # nothing is known of the renewal
    clock.at += 4
    assert found.step()
    assert found.remaining() == 20


def test_two_that_find_none_do_not_both_get_it(server: ApiServer, near: Cluster) -> None:
    first, second = lease(near, "x", "first", Clock()), lease(near, "x", "second", Clock())
    server.fail("GET", "leases", code=404, times=2)
    assert first.step()
    assert not second.step()
    assert second.problem == ""


def test_what_others_note_there_stays(cluster: Cluster, name: str) -> None:
    clock = Clock()
    found = lease(cluster, name, "first", clock)
    assert found.step()
    begun = stored(cluster, name)["acquireTime"]
    cluster.patch(f"{LEASES}/{name}", {"metadata": {"annotations": {"seen": "yes"}}})
    clock.at += 4
    assert found.step()
    kept = cluster.get(f"{LEASES}/{name}")
    assert kept is not None
    assert kept["metadata"]["annotations"] == {"seen": "yes"}
    assert kept["spec"]["acquireTime"] == begun
    assert kept["spec"]["renewTime"] > begun


def test_one_that_is_given_back_is_free_at_once(cluster: Cluster, name: str) -> None:
    first, second = lease(cluster, name, "first", Clock()), lease(cluster, name, "second", Clock())
    assert first.step()
    assert not second.step()
    first.release()
    assert not first.held()
    assert second.step()
    first.release()  # not ours any more: left alone
    assert stored(cluster, name)["holderIdentity"] == "second"


def test_who_comes_again_after_a_kill_waits(cluster: Cluster, name: str) -> None:
    """A process has a name of its own, so its successor can't take it for itself."""
    assert identity() != identity()
    clock = Clock()
    assert lease(cluster, name, "one", clock).step()
    successor = lease(cluster, name, "two", clock)
    assert not successor.step()
    clock.at += 30
    assert successor.step()


def test_it_keeps_itself(server: ApiServer, near: Cluster) -> None:
    quick = Terms(duration=3, deadline=2, retry=0.05)
    found = Lease(near.client, "default", "x", "first", chance=even, terms=quick)
    found.start()
    until(found.held)
    until(lambda: server.count("PATCH", "leases") > 3 and found.held())
    found.stop()
    assert not found.held()
    assert stored(near, "x")["holderIdentity"] == ""


@pytest.mark.parametrize("terms", [(10, 20, 4), (30, 30, 4), (30, 4, 4), (30, 20, 0)])
def test_terms_that_are_not_safe(terms: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="retry < deadline"):
        Terms(*terms)


def test_the_clock_runs_on() -> None:
    before = since_boot()
    assert since_boot() >= before > 0
