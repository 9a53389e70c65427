"""As much of a Kubernetes API server as ``kubectl --dry-run=client`` asks: which kinds there are.

No API server: it holds nothing, and answers every question for an object with 404. For machines where none
can run; what one says is tested where KUBEBUILDER_ASSETS names one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from web import Handler, serving

_CLUSTERED = frozenset(
    {
        "APIService", "CSIDriver", "ClusterIssuer", "ClusterQueue", "ClusterRole", "ClusterRoleBinding",
        "Cohort",
        "CustomResourceDefinition", "AdmissionCheck", "FlowSchema", "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding", "Namespace", "Node", "NodeFeatureRule", "PersistentVolume",
        "PriorityClass", "PriorityLevelConfiguration", "ProvisioningRequestConfig", "ResourceFlavor",
        "RuntimeClass", "StorageClass", "Topology", "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding", "WorkloadPriorityClass",
    }
)  # fmt: skip
"""Kinds without a namespace."""


@contextmanager
def discovery(minor: str, kinds: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The address of a server on the loopback interface. ``kinds``: apiVersion and kind of each."""
    answers = _answers(minor, kinds)

    class Api(Handler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            answer = answers.get(path)
            body = json.dumps(_missing(path) if answer is None else answer).encode()
            self.answer(404 if answer is None else 200, body, Content_Type="application/json")

    with serving(Api) as port:
        yield f"http://127.0.0.1:{port}"


def _answers(minor: str, kinds: Iterable[tuple[str, str]]) -> dict[str, Any]:
    versions: dict[str, set[str]] = defaultdict(set)
    for api, kind in kinds:
        versions[api].add(kind)
    groups: dict[str, list[str]] = defaultdict(list)
    for api in sorted(versions):
        if "/" in api:
            groups[api.partition("/")[0]].append(api)
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": minor.partition(".")[2], "gitVersion": f"v{minor}.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {
                    "name": group,
                    "versions": [{"groupVersion": api, "version": api.partition("/")[2]} for api in apis],
                    "preferredVersion": {"groupVersion": apis[0], "version": apis[0].partition("/")[2]},
                }
                for group, apis in groups.items()
            ],
        },
    }
    for api, found in versions.items():
        answers[f"/apis/{api}" if "/" in api else f"/api/{api}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api,
            "resources": [
                {
                    "name": _plural(kind),
                    "singularName": kind.lower(),
                    "namespaced": kind not in _CLUSTERED,
                    "kind": kind,
                    "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
                }
                for kind in sorted(found)
            ],
        }
    return answers


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("s", "x", "ch")) else f"{name}s"


def _missing(path: str) -> dict[str, Any]:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
        "message": f"{path} not found", "code": 404,
    }  # fmt: skip
