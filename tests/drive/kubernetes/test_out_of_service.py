"""A physical machine that is dead: its node is declared out of service, and taken back.

A real API server. For the whole way also Kubernetes' own controllers, which evict pods, delete those of dead
nodes and detach volumes; what a kubelet and a CSI driver would write is written by the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drive.kubernetes.lab import Lab, lab_of
from kube.api import node, pod
from kube.plane import Plane

from infra.commands.cluster.steps import wait_for
from infra.drive.kubernetes import nodes, status
from infra.drive.kubernetes.api import Api
from infra.drive.secrets.local import LocalStore
from infra.errors import UsageError

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
STORAGE = "/apis/storage.k8s.io/v1"
DRIVER = "disks.example"
NAME = "titan-off"
TAINT = {"key": status.OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}

SPEC = """\
version: 1
name: lab
domain: test.internal
aws: {account: "123456789012"}
sites:
  us-west-2: {kind: aws}
images: {cpu: {}}
"""


def say(api: Api, ready: str, **more: Any) -> None:
    """What is known of the node: ``Unknown`` once its kubelet has said nothing for a while."""
    conditions = [{"type": "Ready", "status": ready, "reason": "x", "message": ""}]
    api.patch(f"{NODES}/{NAME}/status", {"status": {"conditions": conditions, **more}})


def taints(api: Api) -> list[dict[str, Any]]:
    """Without those that Kubernetes itself puts on nodes that are not ready."""
    found = (api.get(f"{NODES}/{NAME}")["spec"].get("taints")) or []
    return [
        {key: value for key, value in each.items() if key != "timeAdded"}
        for each in found
        if each["key"] not in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    ]


@pytest.fixture
def machine(api: Api) -> Iterator[None]:
    """A node, ready."""
    body = node(NAME)
    body["spec"] = {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}
    api.create(NODES, body)
    api.patch(f"{NODES}/{NAME}/status", {"status": body["status"]})
    yield
    api.delete(f"{NODES}/{NAME}")


@pytest.mark.usefixtures("machine")
def test_only_a_node_that_is_silent_is_taken_out_of_service(api: Api) -> None:
    with pytest.raises(UsageError, match="titan-off is ready"):
        nodes.take_out_of_service(api, NAME)
    say(api, "False")
    with pytest.raises(UsageError, match="kubelet"):
        nodes.take_out_of_service(api, NAME)
    gpus = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    assert taints(api) == [gpus]
    say(api, "Unknown")
    for _ in range(2):
        nodes.take_out_of_service(api, NAME)
        assert taints(api) == [gpus, TAINT]
    (found,) = (each for each in status.nodes(api) if each.name == NAME)
    assert (found.out_of_service, found.state) == (True, "not ready")
    say(api, "True")
    (found,) = (each for each in status.nodes(api) if each.name == NAME)
    assert found.state == "cordoned", "nothing comes to it before it is taken back"
    for _ in range(2):
        nodes.return_to_service(api, NAME)
        assert taints(api) == [gpus]


@pytest.mark.usefixtures("machine")
def test_a_node_that_reports_in_the_last_moment_stays_in_service(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(api, "Unknown")
    patch = api.patch

    def late(path: str, body: Any, kind: str = "merge") -> Any:
        monkeypatch.setattr(api, "patch", patch)
        say(api, "True")
        return patch(path, body, kind)

    monkeypatch.setattr(api, "patch", late)
    with pytest.raises(UsageError, match="is ready"):
        nodes.take_out_of_service(api, NAME)
    assert TAINT not in taints(api)


@pytest.fixture
def lab(plane: Plane, store: LocalStore, tmp_path: Path) -> Lab:
    return lab_of(tmp_path, plane, store, SPEC)


@pytest.fixture
def dead_node_controllers(plane: Plane) -> Iterator[None]:
    """Those that act on dead nodes. The test says which are: a heartbeat lasts an hour."""
    names = (
        "node-lifecycle-controller",
        "taint-eviction-controller",
        "pod-garbage-collector-controller",
        "persistentvolume-attach-detach-controller",
    )
    with plane.controllers(*names, flags=["--node-monitor-grace-period=1h"]):
        yield


@pytest.mark.usefixtures("machine", "dead_node_controllers")
def test_pods_and_volumes_of_a_dead_machine_are_free_at_once(api: Api, lab: Lab) -> None:
    """Without the taint a pod stays Terminating, and a volume that is in use attached for 6 minutes."""
    made = _with_a_volume(api)
    attachments = f"{STORAGE}/volumeattachments"
    assert wait_for(lambda: any(api.list(attachments)), seconds=60, beat=0.2), "nothing is attached"
    (attached,) = api.list(attachments)
    path = f"{attachments}/{attached['metadata']['name']}"
    api.patch(f"{path}/status", {"status": {"attached": True}})
    say(api, "True", volumesInUse=[f"kubernetes.io/csi/{DRIVER}^vol-1"])
    lab.invoke("cluster.drain", NAME, "--out-of-service", "--yes", code=1)
    say(api, "Unknown")
    _, err = lab.invoke("cluster.drain", NAME, "--out-of-service", code=1)
    assert "default/train" in err
    assert taints(api) == [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    assert api.find(path) is not None
    out, _ = lab.invoke("cluster.drain", NAME, "--out-of-service", "--yes")
    assert "invoke cluster.drain titan-off" in out
    assert api.find(f"{PODS}/train") is None
    assert wait_for(lambda: api.find(path) is None, seconds=60, beat=0.2), "its volume is still attached"
    say(api, "True")
    _, err = lab.invoke("cluster.status", code=1)
    assert "invoke cluster.drain titan-off --undo" in err
    lab.invoke("cluster.drain", NAME, "--undo")
    assert TAINT not in taints(api)
    for each in reversed(made):
        api.delete(each)


def _with_a_volume(api: Api) -> list[str]:
    """A pod on the node with a volume that a CSI driver attaches. The paths of what was made."""
    api.patch(
        f"{NODES}/{NAME}",
        {"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}},
    )
    uid = api.get(f"{NODES}/{NAME}")["metadata"]["uid"]
    sized: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    owner = {"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": uid}
    driver = {"name": DRIVER, "nodeID": NAME, "topologyKeys": []}
    claimed = {"namespace": "default", "name": "disk"}
    bodies: list[tuple[str, dict[str, Any]]] = [
        (f"{STORAGE}/csidrivers", {"metadata": {"name": DRIVER}, "spec": {"attachRequired": True}}),
        (
            f"{STORAGE}/csinodes",
            {"metadata": {"name": NAME, "ownerReferences": [owner]}, "spec": {"drivers": [driver]}},
        ),
        (
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": "disk"},
                "spec": {
                    **sized,
                    "capacity": {"storage": "1Gi"},
                    "csi": {"driver": DRIVER, "volumeHandle": "vol-1"},
                    "claimRef": claimed,
                },
            },
        ),
        (
            CLAIMS,
            {
                "metadata": {"name": "disk", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {**sized, "volumeName": "disk", "resources": {"requests": {"storage": "1Gi"}}},
            },
        ),
    ]
    for path, body in bodies:
        api.create(path, body)
    api.patch("/api/v1/persistentvolumes/disk/status", {"status": {"phase": "Bound"}})
    api.patch(f"{CLAIMS}/disk/status", {"status": {"phase": "Bound"}})
    uid = api.get(f"{CLAIMS}/disk")["metadata"]["uid"]
    api.patch("/api/v1/persistentvolumes/disk", {"spec": {"claimRef": {**claimed, "uid": uid}}})
    work = pod("train", NAME)
    work["spec"] |= {
        "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}],
    }
    api.create(PODS, work)
    return [f"{path}/{body['metadata']['name']}" for path, body in bodies]
