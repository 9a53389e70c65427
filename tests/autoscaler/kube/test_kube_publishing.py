"""The ConfigMap for people, with the controller's own rights on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from autoscaler.kube.account import account as own_account
from autoscaler.kube.clusters import Cluster
from autoscaler.make import NOW, config, group, node, snapshot, state, titans
from kube.plane import Plane
from msgspec.structs import replace

from infra.autoscaler import assembly
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Terminate
from infra.autoscaler.kube.client import Client
from infra.autoscaler.kube.credentials import Credentials
from infra.autoscaler.kube.publishing import KEY, NAME, Publisher
from infra.autoscaler.loop import Cycle
from infra.autoscaler.memory import Drain, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import DRAIN_TAINT
from infra.render.kubernetes.manifests import SYSTEM

PATH = f"/api/v1/namespaces/{SYSTEM}/configmaps/{NAME}"


@pytest.fixture(scope="module")
def account(plane: Plane) -> Iterator[Cluster]:
    with own_account(plane) as kubeconfig:
        yield Cluster.of(kubeconfig)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def values(free: int) -> dict[str, Any]:
    return {"version": 1, "machines": [{"free": free}]}


def there(cluster: Cluster) -> tuple[dict[str, Any], str]:
    found = cluster.get(PATH)
    assert found is not None
    return json.loads(found["data"][KEY]), found["metadata"]["resourceVersion"]


def test_it_is_made_and_written_where_it_has_changed_and_seldom(account: Cluster) -> None:
    clock = Clock()
    publisher = Publisher(account.client, SYSTEM, now=clock)
    assert publisher.publish(lambda: values(1)) == ""
    first, version = there(account)
    assert first == {**values(1), "written": "2027-01-15T08:00:00Z"}

    assert publisher.publish(lambda: pytest.fail("too early")) == ""
    clock.now += 31
    assert publisher.publish(lambda: values(1)) == ""
    assert there(account)[1] == version

    clock.now += 31
    assert publisher.publish(lambda: values(2)) == ""
    assert there(account)[0]["machines"] == [{"free": 2}]

    clock.now += 601
    assert publisher.publish(lambda: values(2)) == ""
    assert there(account)[0]["written"] == "2027-01-15T08:11:03Z"


def test_another_leader_goes_on_with_it(account: Cluster) -> None:
    assert Publisher(account.client, SYSTEM, now=Clock()).publish(lambda: values(3)) == ""
    assert Publisher(account.client, SYSTEM, now=Clock()).publish(lambda: values(4)) == ""
    assert there(account)[0]["machines"] == [{"free": 4}]


def test_without_the_lease_nothing_is_looked_at_or_written(account: Cluster) -> None:
    publisher = Publisher(account.client, SYSTEM, now=Clock(), may=lambda: False)
    assert publisher.publish(lambda: pytest.fail("not ours")) == ""


def test_what_goes_wrong_is_said_and_tried_again(real: Cluster, account: Cluster) -> None:
    clock = Clock()
    publisher = Publisher(account.client, "default", now=clock)
    assert "forbidden" in publisher.publish(lambda: values(5))
    clock.now += 31
    # It was not written, so it is no less due for being the same.
    assert "forbidden" in publisher.publish(lambda: values(5))
    away = Client(Credentials(real.kubeconfig), chance=lambda: 0.5)
    assert Publisher(away, SYSTEM, now=clock).publish(lambda: values(5)) == ""


def test_a_dry_run_publishes_nothing_and_one_that_leads_does(real: Cluster, account: Cluster) -> None:
    if real.get(PATH) is not None:
        real.delete(PATH)
    of = config()
    side = assembly.Cluster(of, account.kubeconfig)
    seen = snapshot(nodes=titans(2), of=of)
    cycle = Cycle(at=NOW, snapshot=seen, decision=decide(seen, Memory(), of, NOW))
    side.publish(cycle)  # without the lease
    assert side.lease.step(), side.lease.problem
    side.publish(replace(cycle, dry=True))
    side.publish(replace(cycle, decision=None))
    assert real.get(PATH) is None
    side.publish(cycle)
    side.lease.release()
    (row,) = there(account)[0]["machines"]
    assert (row["site"], row["ready"], row["free"]) == ("rack-a", 2, 8)


def test_machines_that_a_loop_begins_to_end_are_not_free(real: Cluster, account: Cluster) -> None:
    gpus = group()
    of = config(gpus)
    idle = node(gpus, taints=(*gpus.taints, Taint(DRAIN_TAINT, "", "NoSchedule")))
    seen = snapshot([idle, *titans(2)], of=of, groups=[state(gpus, 1, 1)])
    tainted = Drain(gpus.name, idle.instance, "tainted", NOW - 60, NOW - 60, "it is idle")
    decision = decide(seen, Memory(idle={idle.name: NOW - 900}, drains={idle.name: tainted}), of, NOW)
    assert [each.node for each in decision.actions if isinstance(each, Terminate)] == [idle.name]
    side = assembly.Cluster(of, account.kubeconfig)
    assert side.lease.step(), side.lease.problem
    side.publish(Cycle(at=NOW, snapshot=seen, decision=decision))
    side.lease.release()
    assert [row["site"] for row in there(account)[0]["machines"]] == ["rack-a"]
