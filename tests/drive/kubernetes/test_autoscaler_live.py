"""The controller against a real API server with the rights that are rendered, and the commands about it.

AWS is an address where nobody answers: what can be known without it is still said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drive.kubernetes.lab import Lab, lab_of
from drive.kubernetes.test_autoscaler_rights import FOLDERS as RIGHTS
from kube.plane import Plane

from infra.commands.cluster.steps import wait_for
from infra.commands.environment import find, load_project
from infra.drive.kubernetes.api import Api
from infra.drive.secrets.local import LocalStore
from infra.render.kubernetes import autoscaler
from infra.render.kubernetes.manifests import SYSTEM

ROOT = Path(__file__).parents[3]
WORK = "autoscaler-live"
FOLDERS = {
    **RIGHTS,
    "ConfigMap": f"/api/v1/namespaces/{SYSTEM}/configmaps",
    "Deployment": f"/apis/apps/v1/namespaces/{SYSTEM}/deployments",
}

SPEC = """\
version: 1
name: lab
domain: test.internal
aws: {account: "123456789012"}
sites:
  us-west-2: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
  gpu: {ubuntu: 24.04, gpu: {driver: 580}}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
  gpu: {image: gpu, instance_types: [g5.xlarge], regions: {us-west-2: {max: 4}}}
autoscaler: {image: "registry.lab.example/autoscaler:1"}
"""

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": WORK},
    "spec": {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
}


@pytest.fixture
def lab(
    api: Api, plane: Plane, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """With everything applied but the pods, and taken away again: other tests share the server."""
    project = lab_of(tmp_path, plane, store, SPEC)
    project.env |= {
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    monkeypatch.chdir(tmp_path)
    cluster = load_project(find("lab"), changeable=True).cluster
    (tmp_path / "config.json").write_text(autoscaler.configuration(cluster))
    for name in (SYSTEM, WORK):
        if api.find(f"/api/v1/namespaces/{name}") is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            api.create("/api/v1/namespaces", body)
    objects = [each for documents in autoscaler.objects(cluster).values() for each in documents]
    for each in objects:
        api.create(FOLDERS[each["kind"]], each)
    requests = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"
    assert wait_for(lambda: api.find(requests) is not None, seconds=60, beat=0.1), "its CRD is not served"
    account = f"/api/v1/namespaces/{WORK}/serviceaccounts"
    if api.find(f"{account}/default") is None:
        api.create(account, {"metadata": {"name": "default"}})
    api.create(f"/api/v1/namespaces/{WORK}/pods", POD)
    yield project
    api.delete(f"/api/v1/namespaces/{WORK}/pods/train-0")
    for each in reversed(objects):
        api.delete(f"{FOLDERS[each['kind']]}/{each['metadata']['name']}")


def test_36_it_runs_with_the_rights_that_are_rendered_and_tells_pods_why(
    api: Api, lab: Lab, plane: Plane
) -> None:
    token = plane.admin.token(SYSTEM, autoscaler.NAME)
    own = plane.kubeconfig_with("autoscaler", token=token)
    words = ("--config", "config.json", "--kubeconfig", str(own))
    _, err = lab.run("infra.autoscaler", "run", "--once", "--port", "0", *words)
    lines = [json.loads(line) for line in err.splitlines()]
    unread = [line["message"] for line in lines if "be read" in line["message"]]
    assert len(unread) == 1  # of the cluster it may read all that it wants
    assert "aws/us-west-2" in unread[0]
    assert lines[-1]["pending"] == {"waits": 1}
    lease = api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{autoscaler.LEASE}")
    assert not lease["spec"].get("holderIdentity"), "it gives the Lease back when it ends"
    (event,) = api.list(f"/apis/events.k8s.io/v1/namespaces/{WORK}/events")
    assert (event["reason"], event["regarding"]["name"]) == ("WaitsForCapacity", "train-0")
    api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{autoscaler.LEASE}")


def test_an_engineer_is_told_why_a_pod_waits_and_whether_it_works(lab: Lab) -> None:
    out, _ = lab.invoke("autoscaler.explain", "--pod", f"{WORK}/train-0", "--json")
    found = json.loads(out)
    assert (found["pod"], found["outcome"]) == (f"{WORK}/train-0", "waits")
    assert {each["group"] for each in found["obstacles"]} == {"lab-us-west-2-cpu", "lab-us-west-2-gpu"}
    assert any("aws/us-west-2" in each for each in found["unknown"])
    out, err = lab.invoke("autoscaler.explain")
    assert f"{WORK}/train-0" in out
    _, err = lab.invoke("autoscaler.explain", "--pod", f"{WORK}/trian-0", code=1)
    assert f" {WORK}/train-0?" in err
    out, err = lab.invoke("autoscaler.status", code=1)
    assert "registry.lab.example/autoscaler:1, 0 of " in out
    assert "Lease" in err
    assert "Traceback" not in err
