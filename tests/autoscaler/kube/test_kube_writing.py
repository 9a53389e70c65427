"""Writes: once each, onto what they were meant for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from autoscaler.apiserver import REQUESTS, RESOURCES, ApiServer, Object, serving
from autoscaler.kube.clusters import PODS, Cluster, even, fresh

from infra.autoscaler.decision import Action, Answer, Evict, FreeNode, RemoveNode, SetDesired, TaintNode, Tell
from infra.autoscaler.kube.client import Client
from infra.autoscaler.kube.credentials import Credentials
from infra.autoscaler.kube.writing import KubeWriter
from infra.autoscaler.observed.snapshot import DRAIN_TAINT, ENDS_AT

NOW = 1_800_000_000.5
OURS = {"key": DRAIN_TAINT, "value": "1800000000", "effect": "NoSchedule"}
NODES = "/api/v1/nodes"


def writer(cluster: Cluster, **more: Any) -> KubeWriter:
    return KubeWriter(cluster.client, now=lambda: NOW, **more)


def name_of(made: Object) -> str:
    return str(made["metadata"]["name"])


def taints(cluster: Cluster, node: str) -> list[Object]:
    found = cluster.get(f"{NODES}/{node}")
    assert found is not None
    spec: list[Object] = found.get("spec", {}).get("taints") or []
    return spec


def evict(pod: Object, **more: Any) -> Evict:
    meta = pod["metadata"]
    uid = more.pop("uid", meta["uid"])
    return Evict("default", meta["name"], uid, "node", "idle", **more)


def test_a_node_is_tainted_once(cluster: Cluster) -> None:
    node = name_of(cluster.node())
    assert writer(cluster).do(TaintNode(node, "idle")).status == "done"
    assert OURS in taints(cluster, node)
    again = KubeWriter(cluster.client, now=lambda: NOW + 100)
    assert again.do(TaintNode(node, "idle")).status == "needless"
    assert OURS in taints(cluster, node)


def test_27_only_our_own_taint_is_taken_off(cluster: Cluster) -> None:
    """A cordon of somebody else's, and their taints, stay as they are."""
    theirs = {"key": "example.com/broken", "value": "disk", "effect": "NoExecute"}
    node = name_of(cluster.node(spec={"taints": [theirs], "unschedulable": True}))
    # the API may add its own for a cordoned node
    before = taints(cluster, node)
    assert theirs in before
    assert writer(cluster).do(FreeNode(node, "wanted")).status == "needless"
    assert writer(cluster).do(TaintNode(node, "idle")).status == "done"
    assert taints(cluster, node) == [*before, OURS]
    assert writer(cluster).do(FreeNode(node, "wanted")).status == "done"
    assert taints(cluster, node) == before
    found = cluster.get(f"{NODES}/{node}")
    assert found is not None
    assert found["spec"]["unschedulable"] is True


def test_the_last_taint_comes_off_too(cluster: Cluster) -> None:
    node = name_of(cluster.node())
    before = taints(cluster, node)
    writer(cluster).do(TaintNode(node, "idle"))
    assert writer(cluster).do(FreeNode(node, "wanted")).status == "done"
    assert taints(cluster, node) == before


def test_a_node_that_others_write_is_read_again(server: ApiServer, near: Cluster) -> None:
    node = name_of(near.node())

    class Racing(Client):
        rounds = 2

        def find(self, path: str, **more: Any) -> bytes | None:
            found = super().find(path, **more)
            if self.rounds:
                self.rounds -= 1
                near.patch(path, {"metadata": {"labels": {"round": str(self.rounds)}}})
            return found

    racing = Racing(Credentials(near.kubeconfig), chance=even)
    ours = KubeWriter(racing, now=lambda: NOW)
    assert ours.do(TaintNode(node, "idle")).status == "done"
    assert taints(near, node) == [OURS]
    racing.rounds = 10**6
    result = ours.do(FreeNode(node, "wanted"))
    assert result.status == "stale"
    assert taints(near, node) == [OURS]


def test_a_node_that_is_gone(cluster: Cluster) -> None:
    for action in (TaintNode("nobody", "x"), FreeNode("nobody", "x")):
        assert writer(cluster).do(action).status == "stale"
    assert writer(cluster).do(RemoveNode("nobody", "uid", "x")).status == "needless"


def test_28_another_node_of_that_name_stays(cluster: Cluster) -> None:
    """An instance is gone, and its name came back with a new one: the Node object is not the old one's."""
    made = cluster.node()
    node = name_of(made)
    result = writer(cluster).do(RemoveNode(node, "another-uid", "gone"))
    assert result.status == "stale"
    assert cluster.get(f"{NODES}/{node}") is not None
    assert writer(cluster).do(RemoveNode(node, "", "gone")).status == "stale"
    assert cluster.get(f"{NODES}/{node}") is not None
    assert writer(cluster).do(RemoveNode(node, made["metadata"]["uid"], "gone")).status == "done"
    assert cluster.get(f"{NODES}/{node}") is None


def test_a_pod_is_evicted(cluster: Cluster) -> None:
    pod = cluster.pod()
    assert writer(cluster).do(evict(pod)).status == "done"
    assert cluster.get(f"{PODS}/{name_of(pod)}") is None
    assert writer(cluster).do(evict(pod)).status == "needless"


def test_another_pod_of_that_name_stays(cluster: Cluster) -> None:
    pod = cluster.pod()
    for by in (None, NOW):
        result = writer(cluster).do(evict(pod, uid="another-uid", by=by))
        assert result.status == "needless", result
        assert cluster.get(f"{PODS}/{name_of(pod)}") is not None


def test_24_a_budget_says_no_for_a_while(cluster: Cluster) -> None:
    label = {"app": fresh("app")}
    pod = cluster.pod(labels=label)
    budget = name_of(cluster.budget(label, 0))
    for _ in range(2):
        result = writer(cluster).do(evict(pod))
        assert result.status == "refused"
        assert f"default/{name_of(pod)}" in result.text
        assert budget in result.text
    assert cluster.get(f"{PODS}/{name_of(pod)}") is not None
    cluster.allow(budget, 1)
    assert writer(cluster).do(evict(pod)).status == "done"


def test_24_two_budgets_of_one_pod_are_told_as_that(cluster: Cluster) -> None:
    """The API answers 500: nothing would come of asking on, and nothing is wrong with the API."""
    label = {"app": fresh("app")}
    pod = cluster.pod(labels=label)
    for _ in range(2):
        cluster.budget(label, 1)
    assert writer(cluster).do(evict(pod)).status == "refused"


def test_24_a_budget_is_asked_once_a_loop(server: ApiServer, near: Cluster) -> None:
    pod = near.pod(labels={"app": "a"})
    near.budget({"app": "a"}, 0)
    writer(near).do(evict(pod))
    assert server.count("POST", "eviction") == 1


def test_a_pod_is_told_when_its_machine_ends(cluster: Cluster) -> None:
    label = {"app": fresh("app")}
    pod = cluster.pod(labels=label, annotations={"theirs": "1"})
    cluster.budget(label, 0)  # so that it is still there to be looked at
    assert writer(cluster).do(evict(pod, by=NOW + 119.5)).status == "refused"
    found = cluster.get(f"{PODS}/{name_of(pod)}")
    assert found is not None
    assert found["metadata"]["annotations"] == {"theirs": "1", ENDS_AT: "2027-01-15T08:02:00Z"}


def test_a_pod_may_be_told_and_left(cluster: Cluster) -> None:
    pod = cluster.pod()
    name, uid = name_of(pod), pod["metadata"]["uid"]
    assert writer(cluster).do(Tell("default", name, uid, "node", "spot", NOW + 60)).status == "done"
    found = cluster.get(f"{PODS}/{name}")
    assert found is not None
    assert found["metadata"]["annotations"] == {ENDS_AT: "2027-01-15T08:01:00Z"}
    assert "deletionTimestamp" not in found["metadata"]
    assert writer(cluster).do(Tell("default", name, "another", "node", "spot", NOW)).status == "stale"


def test_a_pod_that_cannot_be_told_is_evicted_all_the_same(server: ApiServer, near: Cluster) -> None:
    pod = near.pod()
    server.fail("PATCH", "pods", code=403)
    assert writer(near).do(evict(pod, by=NOW)).status == "done"


def test_annotations_come_and_go(cluster: Cluster) -> None:
    pod = cluster.pod()
    name, uid = name_of(pod), pod["metadata"]["uid"]
    assert writer(cluster).annotate("default", name, uid, {"a.b/c": "1", "d": "2"}).status == "done"
    assert writer(cluster).annotate("default", name, uid, {"d": None}).status == "done"
    found = cluster.get(f"{PODS}/{name}")
    assert found is not None
    assert found["metadata"]["annotations"] == {"a.b/c": "1"}
    assert writer(cluster).annotate("default", name, "another", {"d": "2"}).status == "stale"
    assert writer(cluster).annotate("default", "nobody", uid, {"d": "2"}).status == "stale"


ACTIONS: list[Action] = [
    TaintNode("n", "x"),
    FreeNode("n", "x"),
    RemoveNode("n", "u", "x"),
    Evict("default", "p", "u", "n", "x", by=NOW),
    Tell("default", "p", "u", "n", "x", NOW),
    Answer("g", "default", "r", "Accepted", "Fits", "all of it"),
]


def world(server: ApiServer) -> None:
    server.resources[REQUESTS] = "ProvisioningRequest"
    server.put(NODES, {"metadata": {"name": "n", "uid": "u"}, "spec": {"taints": [OURS]}})
    server.put("/api/v1/pods", {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}})
    server.put(REQUESTS, {"metadata": {"name": "r", "namespace": "default"}})


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
def test_35_nothing_is_written_without_the_lease(server: ApiServer, near: Cluster, action: Any) -> None:
    world(server)
    if isinstance(action, TaintNode):
        near.patch(f"{NODES}/n", {"spec": {"taints": None}})
    before = dict(server.objects)
    result = writer(near, may=lambda: False).do(action)
    assert result.status == "stale"
    assert "lease" in result.text
    assert server.objects == before
    assert writer(near).do(action).status == "done"


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"code": 403}, "refused"),
        ({"code": 422}, "refused"),
        ({"code": 503, "headers": {"Retry-After": "600"}}, "refused"),
        ({"how": "cut"}, "failed"),
        ({"how": "half"}, "failed"),
        ({"how": "hang"}, "failed"),
        ({"code": 200, "body": b'{"metadata": 7}'}, "failed"),
    ],
)
def test_no_answer_raises(
    server: ApiServer, near: Cluster, action: Any, how: dict[str, Any], status: str
) -> None:
    world(server)
    server.fail("*", ".", times=10**6, **how)
    quick = Cluster.of(near.kubeconfig, sleep=lambda _: None)
    # An answer may take as long as it takes; for one that never comes nobody waits.
    result = writer(quick, total=0.1 if status == "failed" else 60.0).do(action)
    if how.get("code") == 200 and isinstance(action, RemoveNode | Evict | Tell):
        assert result.status == "done"  # what it says of what it did is not read
    else:
        assert result.status == status, result


def test_what_is_none_of_the_clusters(near: Cluster) -> None:
    assert writer(near).do(SetDesired("g", 0, 1, "x")).status == "refused"


def request(server: ApiServer, **body: Any) -> None:
    server.resources[REQUESTS] = "ProvisioningRequest"
    server.put(REQUESTS, {"metadata": {"name": "r", "namespace": "default", "generation": 3}, **body})


def conditions(server: ApiServer) -> list[Object]:
    found = server.get(REQUESTS, "r", "default")
    assert found is not None
    told: list[Object] = found["status"]["conditions"]
    return told


def test_a_request_is_answered(server: ApiServer, near: Cluster) -> None:
    request(server)
    accepted = Answer("g", "default", "r", "Accepted", "all fits!", "8 machines come")
    assert writer(near).do(accepted).status == "done"
    assert writer(near).do(accepted).status == "needless"
    assert conditions(server) == [
        {
            "type": "Accepted",
            "status": "True",
            "reason": "allfits",
            "message": "8 machines come",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
            "observedGeneration": 3,
        }
    ]
    assert writer(near).do(Answer("g", "default", "r", "Provisioned", "", "")).status == "done"
    assert [each["type"] for each in conditions(server)] == ["Accepted", "Provisioned"]
    assert conditions(server)[1]["reason"] == "Provisioned"
    later = KubeWriter(near.client, now=lambda: NOW + 60)
    assert later.do(Answer("g", "default", "r", "Accepted", "Fits", "9 machines come")).status == "done"
    told = {each["type"]: each for each in conditions(server)}
    assert told["Accepted"]["message"] == "9 machines come"
    assert told["Accepted"]["lastTransitionTime"] == "2027-01-15T08:00:00Z"


def test_a_request_of_the_older_version_is_answered(tmp_path: Path) -> None:
    older = REQUESTS.replace("/v1/", "/v1beta1/")
    with serving({**RESOURCES, older: "ProvisioningRequest"}) as server:
        near = Cluster.of(server.kubeconfig(tmp_path))
        server.put(older, {"metadata": {"name": "r", "namespace": "default"}})
        assert writer(near).do(ACTIONS[-1]).status == "done"


def test_a_request_that_is_gone(server: ApiServer, near: Cluster) -> None:
    assert writer(near).do(ACTIONS[-1]).status == "stale"
    server.resources[REQUESTS] = "ProvisioningRequest"
    assert writer(near).do(ACTIONS[-1]).status == "stale"
