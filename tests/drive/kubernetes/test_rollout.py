"""Workloads on nodes of which some are dead: real controllers, and kubelets that this test plays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kube.api import node
from kube.plane import Plane, planes

from infra.drive.kubernetes import rollout
from infra.drive.kubernetes.api import Api, ApiError, AwayError
from infra.drive.kubernetes.refs import Ref
from infra.drive.kubernetes.secrets import Keys
from infra.errors import DriveError

NAMESPACE = "rollout"
AGENTS = Ref("apps/v1", "DaemonSet", NAMESPACE, "agents")
PAGE = Ref("apps/v1", "Deployment", NAMESPACE, "page")
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TWO_OF_THREE = "2 of 3 pods; away: dead"
CONTROLLERS = ("daemonset-controller", "deployment-controller", "replicaset-controller")
BROKEN = "broken"
"""An image that comes up nowhere."""


class Kubelets(threading.Thread):
    """Of nodes that are alive: their pods start, and end when they are to."""

    def __init__(self, api: Api, *alive: str) -> None:
        super().__init__(daemon=True)
        self._api = api
        self.alive = alive
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            with suppress(ApiError, AwayError):
                for pod in list(self._api.list(PODS)):
                    self._one(pod)

    def _one(self, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        where = f"{PODS}/{name}"
        if "nodeName" not in spec:
            target = {"apiVersion": "v1", "kind": "Node", "name": self._place(spec)}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self._api.create(f"{where}/binding", body)
        elif spec["nodeName"] not in self.alive:
            return
        elif "deletionTimestamp" in pod["metadata"]:
            self._api._call("DELETE", where, query={"gracePeriodSeconds": "0"})
        elif pod["status"].get("phase") != "Running" and spec["containers"][0]["image"] != BROKEN:
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self._api.patch(f"{where}/status", {"status": ready})

    def _place(self, spec: dict[str, Any]) -> str:
        """As the scheduler does: a DaemonSet's pod names its node."""
        try:
            (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
            return str(term["matchFields"][0]["values"][0])
        except KeyError:
            return "one"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Plane]:
    """With no other nodes."""
    with planes(tmp_path_factory.mktemp("rollout"), keys) as found:
        yield found


def says(api: Api, name: str, ready: str) -> None:
    condition = {"type": "Ready", "status": ready}
    api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}})


@pytest.fixture
def nodes(api: Api, plane: Plane) -> Iterator[Kubelets]:
    names = ("one", "two", "dead")
    for name in names:
        api.create("/api/v1/nodes", node(name))
        says(api, name, "True")
    if api.find(f"/api/v1/namespaces/{NAMESPACE}") is None:
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    kubelets = Kubelets(plane.driven, *names)
    kubelets.start()
    try:
        with plane.controllers(*CONTROLLERS):
            yield kubelets
    finally:
        kubelets.ended.set()
        kubelets.join()
        for path in (DAEMON_SETS, DEPLOYMENTS):
            for each in list(api.list(path)):
                api.delete(f"{path}/{each['metadata']['name']}")
        for each in list(api.list(PODS)):
            api._call("DELETE", f"{PODS}/{each['metadata']['name']}", query={"gracePeriodSeconds": "0"})
        for name in names:
            api.delete(f"/api/v1/nodes/{name}")


def workload(ref: Ref, image: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": ref.name}
    everywhere = [{"operator": "Exists"}]
    inside = {"containers": [{"name": "main", "image": image}], "tolerations": everywhere,
              "terminationGracePeriodSeconds": 0}  # fmt: skip
    template = {"metadata": {"labels": labels}, "spec": inside}
    return {
        "apiVersion": "apps/v1",
        "kind": ref.kind,
        "metadata": {"name": ref.name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def changed(image: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}


def test_what_is_on_a_dead_node_is_told_and_not_waited_for(api: Api, nodes: Kubelets) -> None:
    api.create(DAEMON_SETS, workload(AGENTS, "first"))
    api.create(DEPLOYMENTS, workload(PAGE, "first", replicas=2))
    both = [AGENTS, PAGE]
    assert rollout.wait(api, both, seconds=60) == []
    # Its kubelet has gone, and the API server has heard nothing of it for a while.
    nodes.alive = ("one", "two")
    says(api, "dead", "Unknown")
    lines: list[str] = []
    api.patch(f"{DAEMON_SETS}/agents", changed("second"))
    api.patch(f"{DAEMON_SETS}/agents", {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}})
    assert [line.split(": ", 1) for line in rollout.wait(api, both, seconds=60, on_line=lines.append)] == [
        ["DaemonSet rollout/agents", TWO_OF_THREE]
    ]
    images = {
        pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
        for pod in api.list(PODS, labelSelector="app=agents")
        if "deletionTimestamp" not in pod["metadata"]
    }
    assert {name: images[name] for name in nodes.alive} == {"one": "second", "two": "second"}


def test_a_dead_node_may_hold_up_others_and_that_is_told_too(api: Api, nodes: Kubelets) -> None:
    """With one pod at a time, the dead one's is the one."""
    api.create(DAEMON_SETS, workload(AGENTS, "first"))
    assert rollout.wait(api, [AGENTS], seconds=60) == []
    nodes.alive = ("one", "two")
    says(api, "dead", "Unknown")
    # Its pod is not available, as the controller of nodes' lifecycle says.
    (lost,) = (each for each in api.list(PODS) if each["spec"]["nodeName"] == "dead")
    condition = {"type": "Ready", "status": "False"}
    api.patch(f"{PODS}/{lost['metadata']['name']}/status", {"status": {"conditions": [condition]}})
    api.patch(f"{DAEMON_SETS}/agents", changed("second"))
    (line,) = rollout.wait(api, [AGENTS], seconds=8)
    assert line.startswith("DaemonSet rollout/agents: ")
    assert line.endswith("away: dead")


def test_what_does_not_come_up_where_it_could_is_an_error(api: Api, nodes: Kubelets) -> None:
    nodes.alive = ("one", "two")
    says(api, "dead", "Unknown")
    api.create(DAEMON_SETS, workload(AGENTS, BROKEN))
    with pytest.raises(DriveError, match="rollout/agents: 0 of 3"):
        rollout.wait(api, [AGENTS], seconds=4)


def test_a_node_that_is_about_to_be_ready_is_waited_for(api: Api, nodes: Kubelets) -> None:
    """As all are before they have a network, whose pods must not be passed over."""
    nodes.alive = ()
    for name in ("one", "two", "dead"):
        says(api, name, "False")
    api.create(DAEMON_SETS, workload(AGENTS, "first"))
    with pytest.raises(DriveError, match="0 of 3"):
        rollout.wait(api, [AGENTS], seconds=4)
    nodes.alive = ("one", "two", "dead")
    assert rollout.wait(api, [AGENTS], seconds=60) == []


def test_selectors_as_the_api_takes_them() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["b", "c"]},
        {"key": "d", "operator": "NotIn", "values": ["e"]},
        {"key": "f", "operator": "Exists"},
        {"key": "g", "operator": "DoesNotExist"},
    ]
    selector = rollout._words({"matchLabels": {"app": "x"}, "matchExpressions": expressions})
    assert selector == "app=x,a in (b,c),d notin (e),f,!g"


def test_without_a_node_for_ordinary_pods_only_daemons_come_up() -> None:
    other = Ref("v1", "ConfigMap", NAMESPACE, "x")
    assert rollout.workloads([AGENTS, PAGE, other], placed=True) == [AGENTS, PAGE]
    assert rollout.workloads([AGENTS, PAGE, other], placed=False) == [AGENTS]
