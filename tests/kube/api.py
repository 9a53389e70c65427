"""Calls to a real API server as somebody, and objects to call it with."""

from __future__ import annotations

import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from waiting import until

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
_PATIENCE = 120
_BUSY = (429, 503, 504)
"""Codes by which the server asks to come again later: on a machine with other work it may be slow."""
_LATER = ("not yet ready", "could not find", "not found", "failed calling webhook")
"""In the refusal of an object whose kind, namespace, admission or webhook is still to come."""


class RefusedError(Exception):
    """The API server's own words, after the code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        named = re.search(r"ValidatingAdmissionPolicy '([^']+)'", message)
        self.policy = named[1] if named else ""
        """The name of the admission policy that refused; empty where none did."""


class Api:
    """Somebody's calls: of whoever the client certificate in ``context`` names, or the bearer token."""

    def __init__(self, address: str, context: ssl.SSLContext, token: str = "") -> None:
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        self._opener.addheaders = [("Authorization", f"Bearer {token}")] if token else []
        self._address = address

    def call(self, method: str, path: str, body: object = None, form: str = "application/json") -> Any:
        """An answer; RefusedError."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            f"https://{self._address}{path}", data, {"Content-Type": form}, method=method
        )
        ends = time.monotonic() + _PATIENCE
        while True:
            try:
                with self._opener.open(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refusal:
                if refusal.code not in _BUSY or time.monotonic() > ends:
                    raise RefusedError(refusal.code, _message(refusal.read())) from None
            time.sleep(0.5)

    def text(self, path: str) -> str:
        """A pod's log, and what else is not JSON. Empty where there is nothing, or not yet."""
        request = urllib.request.Request(f"https://{self._address}{path}")
        try:
            with self._opener.open(request, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError:
            return ""

    def find(self, path: str) -> Any:
        """An object, or None."""
        try:
            return self.call("GET", path)
        except RefusedError as refusal:
            if refusal.code == 404:
                return None
            raise

    def apply(self, each: Object) -> Any:
        """As kubectl does on the server's side; unknown fields are refused."""
        query = "?fieldManager=causeway&force=true&fieldValidation=Strict"
        return self.call("PATCH", f"{path_of(each)}{query}", each, "application/apply-patch+yaml")

    def apply_all(self, documents: Mapping[str, Any]) -> None:
        """File → objects, as they are rendered. Each waits for its kind and its admission."""
        for some in documents.values():
            for each in some:
                until(partial(applied, self, each))

    def create(self, each: Object, *, dry: bool = False) -> Any:
        return self.call("POST", collection(each) + ("?dryRun=All" if dry else ""), each)

    def delete(self, each: Object) -> None:
        self.call("DELETE", path_of(each), {"gracePeriodSeconds": 0})

    def status(self, path: str, status: Object) -> Any:
        """Write the status of an object, as its controller or its kubelet would."""
        return self.call("PATCH", f"{path}/status", {"status": status}, MERGE)

    def token(self, namespace: str, account: str, **spec: Any) -> str:
        """A token of a service account; ``spec`` as in a TokenRequest."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.call("POST", path, body)["status"]["token"])


def _message(body: bytes) -> str:
    """A Status', or plain text, as of a kind that is not served yet."""
    return str(json.loads(body)["message"]) if body[:1] == b"{" else body.decode()


def applied(api: Api, each: Object) -> bool:
    """False where it has to be tried again: a kind, and its admission, need a moment after they begin."""
    error = refused(api.apply, each)
    if error and not any(word in str(error) for word in _LATER):
        raise error
    return error is None


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> RefusedError | None:
    """How the API server refuses a call; None where it takes it."""
    try:
        call(*arguments, **options)
    except RefusedError as error:
        return error
    return None


def collection(each: Object) -> str:
    """The path of an object's siblings."""
    version = each["apiVersion"]
    kinds = each["kind"].lower()
    plural = f"{kinds[:-1]}ies" if kinds.endswith("y") else f"{kinds}{'es' if kinds[-1] == 's' else 's'}"
    namespace = each["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{'/api/v1' if version == 'v1' else f'/apis/{version}'}{within}/{plural}"


def path_of(each: Object) -> str:
    return f"{collection(each)}/{each['metadata']['name']}"


def node(name: str, *, ready: bool = True, version: str = "v1.36.3", **labels: str) -> Object:
    """A node as its kubelet would tell of it; ``gpus`` among the labels counts its GPUs."""
    gpus = labels.pop("gpus", "0")
    ours = {f"causeway.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": ours},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "nodeInfo": {
                "kubeletVersion": version, "machineID": "", "systemUUID": "", "bootID": "",
                "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
            "allocatable": {"cpu": "40", "memory": "250Gi", "pods": "110", "nvidia.com/gpu": gpus},
            "capacity": {"cpu": "40", "memory": "250Gi", "pods": "110", "nvidia.com/gpu": gpus},
        },
    }  # fmt: skip


def pod(name: str, on: str | None, *, namespace: str = "default", gpus: int = 0, **more: Any) -> Object:
    """A pod, placed on a node or on none; ``labels`` among ``more``."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": more.get("labels", {})},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **({"nodeName": on} if on else {}),
        },
    }
