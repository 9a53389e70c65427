"""The autoscaler's rights and the kind by which it is asked, as a real API server has them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from golden_clusters import golden

from infra.autoscaler.kube import kinds
from infra.drive.kubernetes.api import Api, ApiError
from infra.render.kubernetes import autoscaler
from infra.render.kubernetes.manifests import SYSTEM
from infra.render.kubernetes.queues import PROVISIONING_CLASS

ACCOUNT = f"system:serviceaccount:{SYSTEM}:{autoscaler.NAME}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/user-autoscaled/provisioningrequests"

FOLDERS = {
    "CustomResourceDefinition": CRDS,
    "ServiceAccount": f"/api/v1/namespaces/{SYSTEM}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{SYSTEM}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{SYSTEM}/rolebindings",
}


def named(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
def granted(api: Api) -> Iterator[Api]:
    """With the kind and the rights applied, and taken away again: other tests share the server."""
    documents = autoscaler.objects(golden("research"))
    everything = [*documents["kinds.yaml"], *documents["rights.yaml"]]
    for name in (SYSTEM, "user-autoscaled"):
        if api.find(f"/api/v1/namespaces/{name}") is None:
            api.create("/api/v1/namespaces", named(name))
    for each in everything:
        api.create(FOLDERS[each["kind"]], each)
    _settled(api)
    yield api
    for each in reversed(everything):
        api.delete(f"{FOLDERS[each['kind']]}/{each['metadata']['name']}")


def _settled(api: Api) -> None:
    """Until the kind is served and the rights are known: the server watches its own objects for them."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if may(api, "list", "", "nodes"):
            try:
                api.get(REQUESTS)
            except ApiError:
                pass
            else:
                return
        time.sleep(0.1)
    raise AssertionError("nothing came of it")


def may(api: Api, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
    """Whether the account may."""
    what, _, sub = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": what, "subresource": sub}
    asked |= {"namespace": namespace, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": ACCOUNT,
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"],
            "resourceAttributes": asked,
        },
    }
    answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def place(path: str) -> tuple[str, str]:
    """``/apis/batch/v1/jobs`` → (batch, jobs)."""
    parts = path.strip("/").split("/")
    return ("" if parts[0] == "api" else parts[1]), parts[-1]


def request(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "train", "namespace": "user-autoscaled"},
        "spec": {
            "provisioningClassName": PROVISIONING_CLASS,
            "podSets": [{"count": 200, "podTemplateRef": {"name": "train-main"}}],
            **spec,
        },
    }


def test_it_may_do_what_it_does_and_no_more(granted: Api) -> None:
    watched = {place(path) for each in kinds.KINDS for path in each.paths}
    assert ("", "pods") in watched
    allowed = [
        *((verb, group, plural) for group, plural in watched for verb in ("list", "watch")),
        ("get", "", "nodes"),
        ("patch", "", "nodes"),
        ("delete", "", "nodes"),
        ("patch", "", "pods"),
        ("create", "", "pods/eviction"),
        ("patch", "autoscaling.x-k8s.io", "provisioningrequests/status"),
        ("create", "events.k8s.io", "events"),
    ]
    assert [what for what in allowed if not may(granted, *what, namespace="user-ada")] == []
    own = [("coordination.k8s.io", "leases", autoscaler.LEASE), ("", "configmaps", autoscaler.MEMORY)]
    for group, plural, name in own:
        for verb in ("get", "patch"):
            assert may(granted, verb, group, plural, SYSTEM, name)
            assert not may(granted, verb, group, plural, SYSTEM, "another"), f"{verb} {plural}"
            assert not may(granted, verb, group, plural, "kube-system", name)
        assert may(granted, "create", group, plural, SYSTEM)
    denied = [
        ("get", "", "secrets"),
        ("delete", "", "pods"),
        ("create", "", "pods"),
        ("create", "", "pods/exec"),
        ("create", "", "nodes"),
        ("patch", "batch", "jobs"),
        ("delete", "autoscaling.x-k8s.io", "provisioningrequests"),
        ("patch", "autoscaling.x-k8s.io", "provisioningrequests"),
    ]
    assert [what for what in denied if may(granted, *what, namespace="user-ada")] == []


def test_a_request_is_taken_answered_and_never_changed(granted: Api) -> None:
    granted.create(REQUESTS, request(parameters={"a": "b"}))
    condition = {
        "type": "Provisioned",
        "status": "True",
        "reason": "MachinesAreReady",
        "message": "200 of 200",
        "lastTransitionTime": "2026-11-20T12:00:00Z",
    }
    granted.patch(f"{REQUESTS}/train/status", {"status": {"conditions": [condition]}})
    assert granted.get(f"{REQUESTS}/train")["status"]["conditions"] == [condition]
    with pytest.raises(ApiError, match="422"):
        granted.patch(f"{REQUESTS}/train", {"spec": {"provisioningClassName": "another.class"}})
    more = [{"count": 201, "podTemplateRef": {"name": "train-main"}}]
    with pytest.raises(ApiError, match="422"):
        granted.patch(f"{REQUESTS}/train", {"spec": {"podSets": more}})
    wrongs: list[dict[str, Any]] = [
        {"podSets": []},
        {"provisioningClassName": "with/slash"},
        {"podSets": [{"count": 0, "podTemplateRef": {"name": "x"}}]},
    ]
    for wrong in wrongs:
        with pytest.raises(ApiError, match="422"):
            granted.create(REQUESTS, request(**wrong))
    granted.delete(f"{REQUESTS}/train")
