"""What is seen, made into what decisions are made of: fresh looks, and caches under random trouble."""

from __future__ import annotations

import random
import time

import pytest
from autoscaler.apiserver import ApiServer, Object
from autoscaler.kube.clusters import FAST, Cluster, Plain, fresh
from waiting import until

from infra.autoscaler.kube.client import Client, KubeError
from infra.autoscaler.kube.credentials import Credentials
from infra.autoscaler.kube.kinds import KINDS
from infra.autoscaler.kube.reading import Looks
from infra.autoscaler.kube.watching import Watcher
from infra.autoscaler.observed.decoding import Decoder, snapshot

NODES = "/api/v1/nodes"


def test_what_is_on_a_node_now(cluster: Cluster) -> None:
    node = str(cluster.node()["metadata"]["name"])
    looks = Looks(cluster.client, Decoder())
    assert looks.pods_on(node) == ()
    runs, over = (cluster.pod(on=node, phase=phase) for phase in ("Running", "Succeeded"))
    cluster.pod()  # on none
    found = {pod.name: pod for pod in looks.pods_on(node)}
    assert set(found) == {runs["metadata"]["name"], over["metadata"]["name"]}
    assert found[runs["metadata"]["name"]].uid == runs["metadata"]["uid"]
    assert found[runs["metadata"]["name"]].node == node
    assert found[over["metadata"]["name"]].over


def test_a_node_now(cluster: Cluster) -> None:
    made = cluster.node(status={"allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}})
    looks = Looks(cluster.client, Decoder())
    found = looks.node(made["metadata"]["name"])
    assert found is not None
    assert found.uid == made["metadata"]["uid"]
    assert looks.node("nobody") is None


def test_the_node_of_an_instance_now(cluster: Cluster) -> None:
    instance = fresh("i")
    cluster.node()
    looks = Looks(cluster.client, Decoder())
    assert looks.node_of(instance) is None
    made = cluster.node(spec={"providerID": f"aws:///us-west-2a/{instance}"})
    found = looks.node_of(instance)
    assert found is not None
    assert found.uid == made["metadata"]["uid"]


def test_a_pod_that_makes_no_sense_makes_its_node_busy(server: ApiServer, near: Cluster) -> None:
    """A node that can't be understood is not an empty one."""
    odd = {"name": "odd", "namespace": "default", "uid": "u"}
    server.put("/api/v1/pods", {"metadata": odd, "spec": {"nodeName": "n", "containers": "many"}})
    assert [pod.name for pod in Looks(near.client, Decoder()).pods_on("n")] == ["odd"]

    class Strict(Plain):
        """Has nothing to put in the place of a bad one."""

    server.put("/api/v1/pods", {"metadata": {**odd, "labels": {"bad": "1"}}, "spec": {"nodeName": "n"}})
    with pytest.raises(KubeError, match="default/odd"):
        Looks(near.client, Strict()).pods_on("n")


@pytest.mark.parametrize("how", [{"code": 200, "body": b"[]"}, {"code": 503}, {"how": "cut"}])
def test_a_look_that_fails_is_told(server: ApiServer, near: Cluster, how: Object) -> None:
    server.fail("GET", ".", times=10**6, **how)
    looks = Looks(Client(Credentials(near.kubeconfig), chance=random.random, sleep=lambda _: None), Decoder())
    with pytest.raises(KubeError):
        looks.pods_on("n")
    with pytest.raises(KubeError):
        looks.node("n")


def test_the_whole_way_to_a_snapshot(cluster: Cluster) -> None:
    node = str(cluster.node()["metadata"]["name"])
    label = {"app": fresh("app")}
    waits, runs = cluster.pod(phase="Pending", labels=label), cluster.pod(on=node, labels=label)
    cluster.budget(label, 1)
    watcher = Watcher(cluster.client, Decoder(), chance=random.random, timing=FAST)
    watcher.start()
    try:
        assert watcher.wait(30)
        until(lambda: any(node == pod.node for pod in watcher.parts().objects["Pod"].values()))
        parts = watcher.parts()
    finally:
        watcher.stop()
    seen = snapshot(parts.objects, {}, parts.errors, {}, 0.0, parts.faults)
    pods = {pod.uid: pod for pod in seen.pods}
    assert pods[waits["metadata"]["uid"]].node == ""
    assert pods[runs["metadata"]["uid"]].node == node
    assert node in {each.name for each in seen.nodes}
    assert label.items() <= dict(pods[runs["metadata"]["uid"]].labels).items()
    assert 1 in {budget.allowed for budget in seen.budgets}
    assert seen.errors == {}


TROUBLE: list[Object] = [
    {"code": 410}, {"code": 429, "headers": {"Retry-After": "0"}}, {"code": 500}, {"code": 403},
    {"code": 404}, {"code": 200, "body": b"{"}, {"how": "cut"}, {"how": "half"}, {"how": "break"},
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_caches_come_to_what_is_so(server: ApiServer, near: Cluster, seed: int) -> None:
    """Objects come, change and go while connections break, versions are forgotten and the server stops."""
    chance = random.Random(seed)
    client = Client(Credentials(near.kubeconfig), chance=chance.random, sleep=lambda _: time.sleep(0.005))
    kinds = [kind for kind in KINDS if kind.name in ("Pod", "Node", "Workload")]
    watcher = Watcher(client, Plain(), chance=chance.random, kinds=kinds, timing=FAST)
    watcher.start()
    try:
        for step in range(300):
            resource, namespace = chance.choice([(NODES, ""), ("/api/v1/pods", "default")])
            name = f"x{chance.randrange(20)}"
            if chance.random() < 0.3 and server.get(resource, name, namespace):
                server.remove(resource, name, namespace)
            else:
                phase = chance.choice(["Pending", "Running", "Succeeded"])
                meta = {"name": name, "namespace": namespace, "annotations": {"step": str(step)}}
                if not namespace:
                    del meta["namespace"]
                server.put(resource, {"metadata": meta, "status": {"phase": phase}})
            match chance.randrange(25):
                case 0:
                    server.cut_watches()
                case 1:
                    server.compact()
                case 2:
                    server.down()
                    server.up()
                case 3 | 4 | 5:
                    server.fail("GET", chance.choice(["nodes", "pods", "watch=1"]), **chance.choice(TROUBLE))
                    server.cut_watches()
            if chance.random() < 0.1:
                time.sleep(0.01)
                watcher.parts()

        def there(resource: str) -> dict[str, Object]:
            return {
                f"{namespace}/{name}" if namespace else name: each
                for (kind, namespace, name), each in server.objects.items()
                if kind == resource and each.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            }

        def versions(found: dict[str, Object]) -> dict[str, str]:
            return {key: each["metadata"]["resourceVersion"] for key, each in found.items()}

        # Nodes have no phase that anybody selects by.
        nodes = {name: each for (kind, _, name), each in server.objects.items() if kind == NODES}
        until(lambda: versions(watcher.parts().objects["Node"]) == versions(nodes))
        until(lambda: versions(watcher.parts().objects["Pod"]) == versions(there("/api/v1/pods")))
        until(lambda: watcher.healthy and watcher.errors == {})
    finally:
        watcher.stop()
