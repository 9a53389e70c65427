"""Events that users see on their pods (``kubectl describe``): events.k8s.io/v1, without repeats.

The same news about an object is one event, which a series keeps alive, since the server deletes events after
an hour. News that differs only in wording is sent at most every few minutes, and each round has a budget, so
that 50,000 pods waiting for the same reason do not overload the API; later rounds handle the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from infra.autoscaler.kube.client import MERGE, Client, KubeError, RefusedError
from infra.autoscaler.reporting.pod_events import News

CONTROLLER: Final = "causeway.dev/autoscaler"

_NOTE: Final = 1024
_REASON: Final = 128
"""Maximum bytes of a reason in the API."""
_NAME: Final = 236
"""Maximum characters of the object's name in an event's name: 253 less the unique suffix."""


class _Told(Struct):
    name: str
    namespace: str
    note: str
    since: float
    """When this event was created."""
    count: int = 1
    kept: float = 0.0
    """When its series was last updated."""
    asked: float = 0.0
    """When it was last reported."""


class Events:
    """Writes Events. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        holder: str,
        *,
        now: Callable[[], float],
        may: Callable[[], bool] = lambda: True,
        budget: int = 50,
        quiet: float = 300.0,
        refresh: float = 1800.0,
        most: int = 100_000,
    ) -> None:
        """``budget``: writes per round. ``quiet``: seconds between two wordings of one reason. ``refresh``:
        seconds between two updates of a series. ``most``: maximum events remembered."""
        self._client = client
        self._holder = holder[:128] or "autoscaler"
        self._now = now
        self._may = may
        self._budget = budget
        self._quiet = quiet
        self._refresh = refresh
        self._most = most
        self._told: dict[tuple[str, str], _Told] = {}
        self._rest = 0.0

    def tell(self, news: Iterable[News]) -> str:
        """Write one round of events. Never raises; returns the first error, or an empty text. If the API
        does not answer or refuses, the round ends; if it refuses all events, no events are written for
        some minutes."""
        now = self._now()
        if now < self._rest:
            return ""
        written = 0
        for each in news:
            told = self._told.get((each.uid, each.reason))
            if told is not None:
                told.asked = now
            if written >= self._budget or not self._due(each, told, now):
                continue
            if not self._may():
                break
            written += 1
            try:
                self._write(each, told, now)
            except ValueError:
                continue  # not valid text; the next round may have better ones
            except RefusedError as problem:
                if problem.code == 403:
                    self._rest = now + self._quiet
                    return str(problem)
                # Only for this object: its namespace is being deleted, or its name is not accepted.
                self._told[(each.uid, each.reason)] = _Told("", each.namespace, each.note, now, asked=now)
                if problem.code not in (404, 409, 422):
                    return str(problem)
            except KubeError as problem:
                return str(problem)
        self._forget(now)
        return ""

    def _due(self, each: News, told: _Told | None, now: float) -> bool:
        if told is None:
            return True
        if told.note == each.note:
            return bool(told.name) and now - max(told.since, told.kept) >= self._refresh
        return now - told.since >= self._quiet

    def _write(self, each: News, told: _Told | None, now: float) -> None:
        if told is not None and told.name and told.note == each.note:
            series = {"count": told.count + 1, "lastObservedTime": _stamp(now)}
            path = f"{_folder(told.namespace)}/{told.name}"
            try:
                self._client.call("PATCH", path, body={"series": series}, content=MERGE, tries=2, total=5.0)
            except RefusedError as problem:
                if problem.code != 404:
                    raise
                # The server has deleted it: it is created again.
            else:
                told.count += 1
                told.kept = now
                return
        body = _event(each, self._holder, now)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            self._client.call("POST", _folder(namespace), body=body, tries=2, total=5.0)
        except RefusedError as problem:
            # The name is unique: the first attempt succeeded, and its response was lost.
            if problem.reason != "AlreadyExists":
                raise
        self._told[(each.uid, each.reason)] = _Told(name, namespace, each.note, now, asked=now)

    def _forget(self, now: float) -> None:
        if len(self._told) > self._most:
            oldest = sorted(self._told, key=lambda key: self._told[key].asked)
            for key in oldest[: len(oldest) - self._most]:
                del self._told[key]
        for key in [key for key, told in self._told.items() if now - told.asked > 2 * self._refresh]:
            del self._told[key]


def _event(each: News, holder: str, now: float) -> dict[str, Any]:
    # Objects without a namespace have their events in `default`, as the API requires.
    namespace = each.namespace or "default"
    name = f"{each.name[:_NAME].rstrip('.-')}.{uuid.uuid4().hex[:16]}"
    regarding = {"apiVersion": each.api, "kind": each.kind, "name": each.name, "uid": each.uid}
    if each.namespace:
        regarding["namespace"] = each.namespace
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": _stamp(now),
        "reportingController": CONTROLLER,
        "reportingInstance": holder,
        "action": each.action[:_REASON],
        "reason": each.reason[:_REASON],
        "note": _short(each.note),
        "type": each.type,
        "regarding": regarding,
    }


def _folder(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace or 'default'}/events"


def _short(note: str) -> str:
    """The note, shortened to the API's maximum in bytes."""
    data = note.encode()
    return note if len(data) <= _NOTE else data[: _NOTE - 3].decode(errors="ignore") + "…"


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
