"""A Kubernetes API in this process: real HTTP with lists in pages, watches, versions and preconditions, and
whatever goes wrong with one. What it holds is plain objects; nothing runs, as with an API server alone.

What it answers was compared with kube-apiserver: the tests of tests/autoscaler/kube run against both.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Object = dict[str, Any]

RESOURCES: Mapping[str, str] = {
    "/api/v1/configmaps": "ConfigMap",
    "/api/v1/namespaces": "Namespace",
    "/api/v1/nodes": "Node",
    "/api/v1/persistentvolumeclaims": "PersistentVolumeClaim",
    "/api/v1/persistentvolumes": "PersistentVolume",
    "/api/v1/pods": "Pod",
    "/api/v1/podtemplates": "PodTemplate",
    "/apis/apps/v1/daemonsets": "DaemonSet",
    "/apis/batch/v1/jobs": "Job",
    "/apis/coordination.k8s.io/v1/leases": "Lease",
    "/apis/events.k8s.io/v1/events": "Event",
    "/apis/policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
    "/apis/scheduling.k8s.io/v1/priorityclasses": "PriorityClass",
    "/apis/storage.k8s.io/v1/csinodes": "CSINode",
    "/apis/storage.k8s.io/v1/storageclasses": "StorageClass",
}
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/workloads"
_CLUSTER = {"csinodes", "nodes", "namespaces", "persistentvolumes", "priorityclasses", "storageclasses"}
_STATUS = {"nodes", "pods", "poddisruptionbudgets", "provisioningrequests", "workloads", "jobs"}
"""Whose status is written apart."""


@dataclass
class Fault:
    """What goes wrong with the next requests that match."""

    method: str
    path: str
    """A regular expression over path and query."""
    times: int = 1
    code: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    how: str = ""
    """``cut`` (no answer), ``half`` (half of one), ``hang`` (nothing for long), ``drip`` (a byte now and
    then), ``late`` (done, but the answer is lost), ``break`` (a watch's line breaks off)."""


@dataclass
class _Change:
    version: int
    resource: str
    type: str
    now: Object
    before: Object | None


class ApiError(Exception):
    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        self.code = code
        self.status: Object = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code, "details": details,
        }  # fmt: skip
        super().__init__(message)


class ApiServer:
    """It serves from `up` to `down`, and keeps what it holds in between."""

    def __init__(self, resources: Mapping[str, str] = RESOURCES, *, bookmark: float = 0.1) -> None:
        self.resources = dict(resources)
        self.bookmark = bookmark
        self.tokens = {"letmein"}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        """(method, path with its query), in order."""
        self.objects: dict[tuple[str, str, str], Object] = {}
        """(resource, namespace, name) → object."""
        self._changed = threading.Condition(threading.RLock())
        self._version = 1000
        self._oldest = 1000
        self._log: list[_Change] = []
        self._pages: dict[str, list[Object]] = {}
        self._sockets: set[socket.socket] = set()
        self._watching: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    # Whether it serves.

    def up(self) -> None:
        api = self

        class Bound(_Handler):
            server_of = api

        server = _Server(("127.0.0.1", self.port), Bound)
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Nobody listens any more, and every connection is cut."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self._cut(self._sockets)
        with self._changed:
            self._changed.notify_all()

    def cut_watches(self) -> None:
        self._cut(self._watching)

    def _cut(self, which: set[socket.socket]) -> None:
        with self._changed:
            for connection in list(which):
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "kubeconfig"
        token = folder / "token"
        if not token.exists():
            token.write_text("letmein")
        context = {"cluster": "c", "user": "u"}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": "x", "context": context}],
        }  # fmt: skip
        path.write_text(json.dumps(config))
        return path

    # What goes wrong.

    def fail(self, method: str, path: str, **how: Any) -> Fault:
        fault = Fault(method, path, **how)
        self.faults.append(fault)
        return fault

    def compact(self) -> None:
        """No version before now can be watched from, no page of a list goes on."""
        with self._changed:
            self._oldest = self._version
            self._log.clear()
            self._pages.clear()

    def count(self, method: str, path: str) -> int:
        return sum(1 for done, where in self.requests if done == method and re.search(path, where))

    def _fault(self, method: str, path: str) -> Fault | None:
        with self._changed:
            for fault in self.faults:
                if fault.times and fault.method in (method, "*") and re.search(fault.path, path):
                    fault.times -= 1
                    return fault
        return None

    # What it holds; also for tests, who change the world behind the API.

    def put(self, resource: str, body: Object) -> Object:
        """Makes an object, or replaces one, as a controller would."""
        with self._changed:
            meta = body.setdefault("metadata", {})
            key = (resource, meta.get("namespace", ""), meta["name"])
            previous = self.objects.get(key)
            body.setdefault("kind", self.resources[resource])
            body.setdefault("apiVersion", resource.rpartition("/")[0].split("/", 2)[2])
            previous_meta = (previous or {}).get("metadata", {})
            meta.setdefault("uid", previous_meta.get("uid") or str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", previous_meta.get("creationTimestamp") or _now())
            return self._store(resource, "ADDED" if previous is None else "MODIFIED", body, previous)

    def remove(self, resource: str, name: str, namespace: str = "") -> None:
        with self._changed:
            before = self.objects.pop((resource, namespace, name))
            self._store(resource, "DELETED", before, before)

    def get(self, resource: str, name: str, namespace: str = "") -> Object | None:
        with self._changed:
            return copy.deepcopy(self.objects.get((resource, namespace, name)))

    def _store(self, resource: str, event: str, body: Object, previous: Object | None) -> Object:
        self._version += 1
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(self._version)
        key = (resource, body["metadata"].get("namespace", ""), body["metadata"]["name"])
        if event != "DELETED":
            self.objects[key] = body
        self._log.append(_Change(self._version, resource, event, body, previous))
        self._changed.notify_all()
        return copy.deepcopy(body)

    # Requests.

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Object:
        resource, namespace, name, sub = self._parsed(path)
        with self._changed:
            if method == "POST" and sub == "eviction":
                return self._evict(namespace, name, body)
            if method == "GET" and not name:
                return self._list(resource, namespace, query)
            if method == "POST":
                return self._create(resource, namespace, body)
            current = self.objects.get((resource, namespace, name))
            if current is None:
                raise ApiError(404, "NotFound", f'{_plural(resource)} "{name}" not found')
            if method == "GET":
                return copy.deepcopy(current)
            if method == "DELETE":
                return self._delete(resource, current, body or {})
            if method == "PUT":
                return self._write(resource, current, body, sub)
            return self._write(resource, current, _merged(current, body), sub)

    def _parsed(self, path: str) -> tuple[str, str, str, str]:
        match = re.fullmatch(
            r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<ns>[^/]+)(?=/[^/]+))?/(?P<plural>[^/]+)"
            r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?",
            path,
        )
        if match is None:
            raise LookupError(path)
        resource = f"{match[1]}/{match['plural']}"
        namespace, name, sub = match["ns"] or "", match["name"] or "", match["sub"] or ""
        if namespace and resource not in self.resources and match["plural"] == "status":
            resource, namespace, name, sub = f"{match[1]}/namespaces", "", namespace, "status"
        if resource not in self.resources:
            raise LookupError(path)
        return resource, namespace, name, sub

    def _list(self, resource: str, namespace: str, query: dict[str, str]) -> Object:
        token = query.get("continue", "")
        if token:
            left = self._pages.pop(token, None)
            if left is None:
                raise ApiError(410, "Expired", "The provided continue parameter is too old")
            version = json.loads(base64.b64decode(token))["rv"]
        else:
            version = str(self._version)
            left = [
                item
                for key, item in sorted(self.objects.items())
                if key[0] == resource and namespace in ("", key[1]) and _selected(item, query)
            ]
        limit = int(query.get("limit") or 0) or len(left)
        page, rest = left[:limit], left[limit:]
        meta: Object = {"resourceVersion": version}
        if rest:
            next_token = base64.b64encode(
                json.dumps({"rv": version, "id": uuid.uuid4().hex}).encode()
            ).decode()
            self._pages[next_token] = rest
            meta |= {"continue": next_token, "remainingItemCount": len(rest)}
        # Items of a list say neither what they are nor of which version.
        items = [
            {key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in page
        ]
        return {
            "kind": f"{self.resources[resource]}List",
            "apiVersion": resource.rpartition("/")[0].split("/", 2)[2],
            "metadata": meta,
            "items": items,
        }

    def _create(self, resource: str, namespace: str, body: Object) -> Object:
        meta = body.setdefault("metadata", {})
        if _plural(resource) not in _CLUSTER:
            meta["namespace"] = namespace
        key = (resource, meta.get("namespace", ""), meta["name"])
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", f'{_plural(resource)} "{meta["name"]}" already exists')
        for given in ("uid", "creationTimestamp", "resourceVersion"):
            meta.pop(given, None)
        self._checked(resource, body)
        return self.put(resource, body)

    def _write(self, resource: str, current: Object, body: Object, sub: str) -> Object:
        current_meta, meta = current["metadata"], body.setdefault("metadata", {})
        name = current_meta["name"]
        if meta.get("resourceVersion") not in (None, "", current_meta["resourceVersion"]):
            raise ApiError(
                409, "Conflict",
                f'Operation cannot be fulfilled on {_plural(resource)} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
            )  # fmt: skip
        if meta.get("uid", current_meta["uid"]) != current_meta["uid"]:
            raise ApiError(
                422, "Invalid",
                f'{self.resources[resource]} "{name}" is invalid: metadata.uid: Invalid value: '
                f'"{meta["uid"]}": field is immutable',
            )  # fmt: skip
        new = {**copy.deepcopy(body), "metadata": {**meta, "uid": current_meta["uid"]}}
        new["metadata"]["creationTimestamp"] = current_meta["creationTimestamp"]
        new["metadata"]["resourceVersion"] = current_meta["resourceVersion"]
        if sub == "status":
            new = {**copy.deepcopy(current), "status": new.get("status")}
        elif _plural(resource) in _STATUS:
            new["status"] = current.get("status")
        self._checked(resource, new)
        if new == current:
            return copy.deepcopy(current)
        return self._store(resource, "MODIFIED", new, current)

    def _checked(self, resource: str, body: Object) -> None:
        if _plural(resource) == "configmaps":
            size = sum(len(text.encode()) for text in (body.get("data") or {}).values())
            if size > 2**20:
                raise ApiError(422, "Invalid", "ConfigMap is invalid: []: Too long: at most 1048576 bytes")

    def _delete(self, resource: str, current: Object, options: Object) -> Object:
        wanted, meta = options.get("preconditions") or {}, current["metadata"]
        for given, key in (("uid", "uid"), ("resourceVersion", "resourceVersion")):
            if given in wanted and wanted[given] != meta[key]:
                raise ApiError(
                    409, "Conflict",
                    f"Precondition failed: UID in precondition: {wanted[given]}, "
                    f"UID in object meta: {meta[key]}",
                )  # fmt: skip
        spec, phase = current.get("spec") or {}, (current.get("status") or {}).get("phase")
        runs = _plural(resource) == "pods" and spec.get("nodeName") and phase not in ("Succeeded", "Failed")
        if runs and spec.get("terminationGracePeriodSeconds", 30):
            # Its kubelet has the last word: `remove` stands for that.
            if not meta.get("deletionTimestamp"):
                leaving = copy.deepcopy(current)
                leaving["metadata"]["deletionTimestamp"] = _now()
                self._store(resource, "MODIFIED", leaving, current)
        else:
            self.remove(resource, meta["name"], meta.get("namespace", ""))
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _evict(self, namespace: str, name: str, body: Object) -> Object:
        pods = "/api/v1/pods"
        pod = self.objects.get((pods, namespace, name))
        if pod is None:
            raise ApiError(404, "NotFound", f'pods "{name}" not found')
        options = body.get("deleteOptions") or {}
        phase = (pod.get("status") or {}).get("phase")
        if phase == "Running" and not pod["metadata"].get("deletionTimestamp"):
            labels = pod["metadata"].get("labels") or {}
            budgets = [
                budget
                for key, budget in self.objects.items()
                if key[:2] == ("/apis/policy/v1/poddisruptionbudgets", namespace)
                and (budget["spec"]["selector"].get("matchLabels") or {}).items() <= labels.items()
            ]
            if len(budgets) > 1:
                raise ApiError(
                    500, "", "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                    "does not support.",
                )  # fmt: skip
            if budgets:
                self._spend(budgets[0], pod)
        return self._delete(pods, pod, options)

    def _spend(self, budget: Object, pod: Object) -> None:
        status, name = budget.get("status") or {}, budget["metadata"]["name"]
        conditions = {
            condition["type"]: condition["status"] for condition in pod["status"].get("conditions") or []
        }
        if (
            conditions.get("Ready") != "True"
            and status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
        ):
            return  # an unready pod is no loss to a budget that has what it needs
        if status.get("disruptionsAllowed", 0) < 1:
            needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            raise ApiError(
                429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.",
                causes=[
                    {
                        "reason": "DisruptionBudget",
                        "message": f"The disruption budget {name} needs {needs} healthy pods "
                        f"and has {has} currently",
                    }
                ],
            )  # fmt: skip
        spent = copy.deepcopy(budget)
        spent["status"]["disruptionsAllowed"] -= 1
        self._store("/apis/policy/v1/poddisruptionbudgets", "MODIFIED", spent, budget)

    # Watches.

    def watch(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        """Lines, and an empty one now and then so that whoever sends them looks whether anybody listens."""
        resource, namespace, _, _ = self._parsed(path)
        at = sent = int(query.get("resourceVersion") or self._version)
        ends = time.monotonic() + float(query.get("timeoutSeconds") or 1800)
        marks = query.get("allowWatchBookmarks") in ("1", "true")
        marked = time.monotonic()
        if at < self._oldest:
            gone = ApiError(410, "Expired", f"too old resource version: {at} ({self._oldest})")
            yield _line("ERROR", gone.status)
            return
        while time.monotonic() < ends and self._server is not None:
            with self._changed:
                news = [change for change in self._log if change.version > at]
                if not news:
                    self._changed.wait(0.02)
                    news = [change for change in self._log if change.version > at]
                latest = self._version
            for change in news:
                at = change.version
                line = _told(change, resource, namespace, query)
                if line:
                    sent = at
                    yield line
            at = max(at, latest) if not news else at
            # There is none of a version that the watcher knows already.
            if marks and at > sent and time.monotonic() - marked >= self.bookmark:
                marked, sent = time.monotonic(), at
                kind, api = self.resources[resource], resource.rpartition("/")[0].split("/", 2)[2]
                meta = {"resourceVersion": str(at), "creationTimestamp": None}
                yield _line("BOOKMARK", {"kind": kind, "apiVersion": api, "metadata": meta})
            yield b""


@contextmanager
def serving(resources: Mapping[str, str] = RESOURCES) -> Iterator[ApiServer]:
    server = ApiServer(resources)
    server.up()
    try:
        yield server
    finally:
        server.down()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up is no trouble of ours."""


class _Handler(BaseHTTPRequestHandler):
    server_of: ApiServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        with self.server_of._changed:
            self.server_of._sockets.add(self.connection)

    def finish(self) -> None:
        with self.server_of._changed:
            self.server_of._sockets.discard(self.connection)
            self.server_of._watching.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base's name for it
        """Nobody reads it."""

    def _any(self) -> None:
        api = self.server_of
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with api._changed:
            api.requests.append((self.command, self.path))
        fault = api._fault(self.command, self.path)
        if fault is not None and self._failed(fault):
            return
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in api.tokens:
            self._say(401, ApiError(401, "Unauthorized", "Unauthorized").status)
            return
        try:
            if query.get("watch") in ("1", "true"):
                self._stream(parts.path, query, fault)
                return
            body = json.loads(data) if data else None
            answer = api.answer(self.command, parts.path, query, body)
        except LookupError:
            self._raw(404, b"404 page not found\n", {"Content-Type": "text/plain"})
        except ApiError as error:
            self._say(error.code, error.status)
        else:
            if fault is not None and fault.how == "late":
                self._hang_up()
                return
            self._say(201 if self.command == "POST" else 200, answer, fault)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def _failed(self, fault: Fault) -> bool:
        if fault.code:
            body = (
                fault.body or json.dumps(ApiError(fault.code, "Test", "as the test wants it").status).encode()
            )
            self._raw(fault.code, body, {"Content-Type": "application/json", **fault.headers})
        elif fault.how == "cut":
            self._hang_up()
        elif fault.how == "hang":
            self._sleep(30)
            self._hang_up()
        else:
            return False
        return True

    def _sleep(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and self.server_of._server is not None:
            time.sleep(0.02)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _say(self, code: int, answer: Object, fault: Fault | None = None) -> None:
        self._raw(code, json.dumps(answer).encode(), {"Content-Type": "application/json"}, fault)

    def _raw(self, code: int, body: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault is not None and fault.how == "half":
            self.wfile.write(body[: len(body) // 2])
            self._hang_up()
        elif fault is not None and fault.how == "drip":
            for place in range(len(body)):
                self.wfile.write(body[place : place + 1])
                time.sleep(0.02)
        else:
            self.wfile.write(body)

    def _stream(self, path: str, query: dict[str, str], fault: Fault | None) -> None:
        api = self.server_of
        api._parsed(path)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with api._changed:
            api._watching.add(self.connection)
        for line in api.watch(path, query):
            if fault is not None and fault.how == "break" and line:
                self._chunk(line[: len(line) // 2])
                self._hang_up()
                return
            if line:
                self._chunk(line)
            elif self.connection not in api._sockets:
                return
        self.wfile.write(b"0\r\n\r\n")
        with api._changed:
            api._watching.discard(self.connection)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _told(change: _Change, resource: str, namespace: str, query: dict[str, str]) -> bytes:
    """A watcher's line of a change; one that leaves the selection is gone for it."""
    meta = change.now["metadata"]
    if change.resource != resource or namespace not in ("", meta.get("namespace", "")):
        return b""
    now = change.type != "DELETED" and _selected(change.now, query)
    before = change.before is not None and _selected(change.before, query)
    if now:
        return _line("MODIFIED" if before else "ADDED", change.now)
    return _line("DELETED", change.now) if before else b""


def _line(event: str, what: Object) -> bytes:
    return json.dumps({"type": event, "object": what}).encode() + b"\n"


def _selected(item: Object, query: dict[str, str]) -> bool:
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, sign, value = re.fullmatch(r"([^!=]+)(!=|==?)(.*)", term).groups()  # type: ignore[union-attr]
        actual: Any = item
        for part in path.split("."):
            actual = (actual or {}).get(part)
        if ((actual or "") == value) != (sign != "!="):
            return False
    return True


def _merged(onto: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = copy.deepcopy(onto) if isinstance(onto, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _plural(resource: str) -> str:
    return resource.rpartition("/")[2]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
