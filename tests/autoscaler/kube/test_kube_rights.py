"""As in a cluster: a real API server, the rights and the kind that are rendered, and nothing else allowed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from autoscaler.kube.account import REQUESTS
from autoscaler.kube.account import account as own_account
from autoscaler.kube.clusters import FAST, Cluster, fresh
from kube.plane import Plane

from infra.autoscaler.decision import Answer, Evict, FreeNode, RemoveNode, TaintNode
from infra.autoscaler.kube.client import RefusedError
from infra.autoscaler.kube.events import Events
from infra.autoscaler.kube.lease import Lease
from infra.autoscaler.kube.reading import Looks
from infra.autoscaler.kube.store import Store
from infra.autoscaler.kube.watching import Watcher
from infra.autoscaler.kube.writing import KubeWriter
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.decoding import Decoder
from infra.autoscaler.reporting.pod_events import News
from infra.render.kubernetes.manifests import SYSTEM


@pytest.fixture(scope="module")
def account(plane: Plane) -> Iterator[Cluster]:
    """The controller's own way in."""
    with own_account(plane) as kubeconfig:
        yield Cluster.of(kubeconfig)


def test_all_of_it_may_be_watched(account: Cluster) -> None:
    watcher = Watcher(account.client, Decoder(), chance=random.random, timing=FAST)
    watcher.start()
    try:
        assert watcher.wait(60)
        assert watcher.errors == {}
        assert watcher.healthy
        assert watcher.path("ProvisioningRequest") == "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"
    finally:
        watcher.stop()


def test_a_lease_and_a_memory(account: Cluster) -> None:
    lease = Lease(account.client, SYSTEM, "autoscaler", "me", chance=random.random)
    assert lease.step(), lease.problem
    assert lease.step(), lease.problem
    lease.release()
    assert lease.problem == ""
    for memory in (Memory(idle={"a": 1.0}), Memory()):
        Store(account.client, SYSTEM).save(memory)
        assert Store(account.client, SYSTEM).load() == memory


def test_nodes_and_pods(account: Cluster, real: Cluster) -> None:
    writer = KubeWriter(account.client, now=time.time)
    node = real.node()
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    pod = real.pod(on=name)["metadata"]
    looks = Looks(account.client, Decoder())
    assert [each.uid for each in looks.pods_on(name)] == [pod["uid"]]
    assert writer.do(TaintNode(name, "idle")).status == "done"
    assert writer.do(FreeNode(name, "wanted")).status == "done"
    evict = Evict("default", pod["name"], pod["uid"], name, "spot", by=time.time() + 60)
    assert writer.do(evict).status == "done"
    news = News("Pod", "default", pod["name"], pod["uid"], "Evicted", "its machine ends")
    assert Events(account.client, "me", now=time.time).tell([news]) == ""
    assert looks.node(name) is not None
    assert writer.do(RemoveNode(name, uid, "gone")).status == "done"
    assert looks.node(name) is None


def test_requests_are_answered(account: Cluster, real: Cluster) -> None:
    name = fresh("request")
    real.create(
        REQUESTS,
        {
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": "ProvisioningRequest",
            "metadata": {"name": name},
            "spec": {
                "provisioningClassName": "batch.causeway.dev",
                "podSets": [{"count": 4, "podTemplateRef": {"name": "t"}}],
            },
        },
    )
    writer = KubeWriter(account.client, now=time.time)

    def answer(condition: Any, reason: str) -> str:
        return writer.do(Answer("g", "default", name, condition, reason, "8 machines come")).status

    assert answer("Accepted", "Fits") == "done"
    assert answer("Accepted", "Fits") == "needless"
    assert answer("Provisioned", "") == "done"
    assert answer("Provisioned", "") == "needless"
    found = real.get(f"{REQUESTS}/{name}")
    assert found is not None
    conditions = [(each["type"], each["status"], each["reason"]) for each in found["status"]["conditions"]]
    assert conditions == [("Accepted", "True", "Fits"), ("Provisioned", "True", "Provisioned")]


@pytest.mark.parametrize(
    "path",
    ["/api/v1/secrets", "/api/v1/namespaces/default/configmaps", f"/api/v1/namespaces/{SYSTEM}/secrets"],
)
def test_nothing_else_is_allowed(account: Cluster, path: str) -> None:
    with pytest.raises(RefusedError, match="forbidden"):
        account.client.get(path)
