"""Writes to the cluster: each action once, on the object that the decision was about.

A write contains the resource version or the UID of its object, so that a retry is harmless and a successor
with the same name is not changed. Errors from the API are returned as a `Result`, not raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from infra.autoscaler.decision import (
    Action,
    Answer,
    Evict,
    FreeNode,
    HoldFlavor,
    RemoveNode,
    Result,
    TaintNode,
    Tell,
)
from infra.autoscaler.kube.client import JSON, MERGE, AwayError, Client, KubeError, RefusedError
from infra.autoscaler.observed.snapshot import DRAIN_TAINT, ENDS_AT, NO_CAPACITY

_ROUNDS: Final = 4
"""Attempts to update an object after conflicts with other writers."""
_REQUESTS: Final = ("/apis/autoscaling.x-k8s.io/v1", "/apis/autoscaling.x-k8s.io/v1beta1")
_NODES: Final = "/api/v1/nodes"
_FLAVORS: Final = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
_REASON: Final = re.compile(r"[^A-Za-z0-9_,:]+")


class _Meta(Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""
    generation: int = 0


class _Taint(Struct, rename="camel", omit_defaults=True):
    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class _Taints(Struct, rename="camel"):
    """The taints of a node, or of a flavor."""

    taints: list[_Taint] | None = None
    node_taints: list[_Taint] | None = None


class _Tainted(Struct):
    metadata: _Meta
    spec: _Taints = msgspec.field(default_factory=_Taints)


class _Condition(Struct, rename="camel", omit_defaults=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class _RequestStatus(Struct):
    conditions: list[_Condition] | None = None


class _Request(Struct):
    metadata: _Meta
    status: _RequestStatus = msgspec.field(default_factory=_RequestStatus)


class KubeWriter:
    """Executes actions on the cluster. Thread-safe."""

    def __init__(
        self,
        client: Client,
        *,
        now: Callable[[], float],
        may: Callable[[], bool] = lambda: True,
        total: float = 10.0,
    ) -> None:
        """``may`` returns whether this process holds the lease: called before each write. ``total``: maximum
        seconds of a write with retries, within ``Lease.margin``."""
        self._client = client
        self._now = now
        self._may = may
        self._total = total

    def do(self, action: Action) -> Result:
        """Execute one action, in bounded time."""
        try:
            match action:
                case TaintNode():
                    return self._taint(action)
                case FreeNode():
                    return self._free(action)
                case Evict():
                    return self._evict(action)
                case Tell():
                    return self._tell(action.namespace, action.pod, action.uid, action.by)
                case RemoveNode():
                    return self._remove(action)
                case Answer():
                    return self._answer(action)
                case HoldFlavor():
                    return self._hold(action)
                case _:
                    return Result("refused", f"{type(action).__name__} is none of the cluster's")
        except _NotOursError:
            return Result("stale", "the lease is not ours any more")
        except RefusedError as problem:
            return Result("refused", str(problem))
        except AwayError as problem:
            return Result("failed", str(problem))
        except (KubeError, msgspec.MsgspecError) as problem:
            return Result("failed", f"an answer that cannot be parsed: {problem}")

    def annotate(self, namespace: str, pod: str, uid: str, notes: Mapping[str, str | None]) -> Result:
        """Set annotations of a pod; None removes one."""
        try:
            return self._annotated(namespace, pod, uid, notes)
        except _NotOursError:
            return Result("stale", "the lease is not ours any more")

    # Nodes and flavors.

    def _taint(self, action: TaintNode) -> Result:
        def tainted(there: list[_Taint]) -> list[_Taint]:
            if any(each.key == DRAIN_TAINT for each in there):
                return there
            return [*there, _Taint(DRAIN_TAINT, str(int(self._now())), "NoSchedule")]

        return self._retainted(f"{_NODES}/{action.node}", "taints", f"node {action.node}", tainted)

    def _free(self, action: FreeNode) -> Result:
        def freed(there: list[_Taint]) -> list[_Taint]:
            return [each for each in there if each.key != DRAIN_TAINT]

        return self._retainted(f"{_NODES}/{action.node}", "taints", f"node {action.node}", freed)

    def _hold(self, action: HoldFlavor) -> Result:
        def held(there: list[_Taint]) -> list[_Taint]:
            others = [each for each in there if each.key != NO_CAPACITY]
            return [*others, _Taint(NO_CAPACITY, effect="NoSchedule")] if action.held else others

        path = f"{_FLAVORS}/{action.flavor}"
        return self._retainted(path, "nodeTaints", f"flavor {action.flavor}", held)

    def _retainted(
        self,
        path: str,
        field: Literal["taints", "nodeTaints"],
        what: str,
        change: Callable[[list[_Taint]], list[_Taint]],
    ) -> Result:
        def once() -> Result:
            body = self._client.find(path, tries=2, total=self._total)
            if body is None:
                return Result("stale", f"{what} not found")
            found = msgspec.json.decode(body, type=_Tainted)
            there = (found.spec.taints if field == "taints" else found.spec.node_taints) or []
            taints = change(there)
            if taints == there:
                return Result("needless")
            # With a resource version, the API merges the patch into that version or not at all.
            meta = {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid}
            self._write("PATCH", path, {"metadata": meta, "spec": {field: taints or None}}, content=MERGE)
            return Result("done")

        return self._rounds(once, what)

    def _remove(self, action: RemoveNode) -> Result:
        try:
            self._write(
                "DELETE",
                f"{_NODES}/{action.node}",
                {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": action.uid}},
            )
        except RefusedError as problem:
            if problem.code == 404:
                return Result("needless")
            if problem.code == 409:
                return Result("stale", f"another node is called {action.node} now")
            raise
        return Result("done")

    # Pods.

    def _evict(self, action: Evict) -> Result:
        where = f"/api/v1/namespaces/{action.namespace}/pods/{action.pod}"
        name = f"{action.namespace}/{action.pod}"
        if action.by is not None:
            told = self._tell(action.namespace, action.pod, action.uid, action.by)
            if told.status == "stale":
                return Result("needless", told.text)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": action.pod, "namespace": action.namespace},
            "deleteOptions": {"preconditions": {"uid": action.uid}},
        }
        try:
            # Only once: whether a budget's refusal is permanent is decided in the next loop.
            self._write("POST", f"{where}/eviction", eviction, tries=1)
        except RefusedError as problem:
            if problem.code == 404 and problem.whole:
                return Result("needless", f"the pod {name} is gone")
            if problem.code == 409 and _successor(problem):
                return Result("needless", f"the pod {name} is gone, another one is called so")
            if problem.code == 429 and problem.causes:
                return Result("refused", f"a disruption budget keeps {name}: {'; '.join(problem.causes)}")
            if problem.code == 500 and "PodDisruptionBudget" in str(problem):
                return Result("refused", f"more than one disruption budget keeps {name}: none of them may")
            raise
        return Result("done")

    def _tell(self, namespace: str, pod: str, uid: str, by: float) -> Result:
        ends = datetime.fromtimestamp(by, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._annotated(namespace, pod, uid, {ENDS_AT: ends})

    def _annotated(self, namespace: str, pod: str, uid: str, notes: Mapping[str, str | None]) -> Result:
        body = {"metadata": {"uid": uid, "annotations": dict(notes)}}
        try:
            self._write("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod}", body, content=MERGE)
        except RefusedError as problem:
            if problem.code == 404 or _successor(problem):
                return Result("stale", f"the pod {namespace}/{pod} is gone")
            return Result("refused", str(problem))
        except KubeError as problem:
            return Result("failed", str(problem))
        return Result("done")

    # Provisioning requests.

    def _answer(self, action: Answer) -> Result:
        def once() -> Result:
            for api in _REQUESTS:
                path = f"{api}/namespaces/{action.namespace}/provisioningrequests/{action.name}"
                try:
                    body = self._client.get(path, tries=2, total=self._total)
                except RefusedError as problem:
                    if problem.code != 404:
                        raise
                    if problem.whole:
                        break
                    continue
                return self._answered(action, path, msgspec.json.decode(body, type=_Request))
            return Result("stale", f"provisioning request {action.namespace}/{action.name} not found")

        return self._rounds(once, f"provisioning request {action.namespace}/{action.name}")

    def _answered(self, action: Answer, path: str, request: _Request) -> Result:
        there = request.status.conditions or []
        old = next((each for each in there if each.type == action.condition), None)
        reason = _REASON.sub("", action.reason.strip()).strip("_,:0123456789") or action.condition
        new = _Condition(
            action.condition,
            "True",
            reason[:1024],
            action.message[:32768],
            datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            request.metadata.generation,
        )
        if old is not None and old.status == "True":
            if (old.reason, old.message) == (new.reason, new.message):
                return Result("needless")
            # The transition time is when it became true, even if the message changes.
            new.last_transition_time = old.last_transition_time
        rest = [each for each in there if each.type != action.condition]
        meta = {"resourceVersion": request.metadata.resource_version, "uid": request.metadata.uid}
        self._write(
            "PATCH",
            f"{path}/status",
            {"metadata": meta, "status": {"conditions": [*rest, new]}},
            content=MERGE,
        )
        return Result("done")

    # Writes.

    def _rounds(self, once: Callable[[], Result], what: str) -> Result:
        for _ in range(_ROUNDS):
            try:
                return once()
            except RefusedError as problem:
                if problem.code == 404:
                    return Result("stale", f"{what} is gone")
                if problem.code != 409:
                    raise
        return Result("stale", f"{what} is being written by others all the time")

    def _write(self, method: str, path: str, body: Any, *, content: str = JSON, tries: int = 3) -> None:
        if not self._may():
            raise _NotOursError
        self._client.call(method, path, body=body, content=content, tries=tries, total=self._total)


class _NotOursError(Exception):
    """The lease was lost: nothing may be written."""


def _successor(problem: RefusedError) -> bool:
    """Whether the object with this name is not the expected one, because its uid differs.

    A delete or an eviction then fails with a conflict (409), a patch with an invalid change of the uid
    (422).
    """
    said = str(problem)
    return (problem.code == 409 and "UID" in said) or (problem.code == 422 and "metadata.uid" in said)
