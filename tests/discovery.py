"""As much of a Kubernetes API server as ``kubectl --dry-run=client`` asks: which kinds there are.

No API server: it holds nothing, and answers every question for an object with 404. For machines where none
can run; what one says is tested where KUBEBUILDER_ASSETS names one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

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


class Discovery:
    """A server on the loopback interface for as long as it is open."""

    def __init__(self, minor: str, kinds: Iterable[tuple[str, str]]) -> None:
        """``kinds``: apiVersion and kind of each."""
        answers = _answers(minor, kinds)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                found = answers.get(path)
                body = json.dumps(found if found is not None else _missing(path)).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


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
