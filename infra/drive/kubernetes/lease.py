"""One person at a time: a Lease in the cluster says who is at work on it (coordination.k8s.io/v1).

It is renewed while the work goes on. One that nobody renewed for two minutes is a laptop that was closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from infra.catalogue.labels import OURS
from infra.drive.clock import now
from infra.drive.kubernetes.api import Api, ApiError, AwayError
from infra.errors import UsageError

NAME: Final = "causeway-operation"
NAMESPACE: Final = "kube-system"
DURATION: Final = 120
_BEAT: Final = 30.0

_FOLDER: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_ABOUT: Final = f"{OURS}/doing"
_PROCESS: Final = f"{OURS}/process"


@contextmanager
def held(
    api: Api, renewing: Api, who: str, doing: str, *, clock: Callable[[], datetime] = now
) -> Iterator[None]:
    """Nobody else works on the cluster meanwhile. ``UsageError`` with who does.

    ``renewing`` is another connection, for the thread that keeps the lease.
    """
    _take(api, who, doing, clock)
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(_BEAT):
            change = [
                # Somebody may have taken it over while this laptop slept.
                {"op": "test", "path": "/spec/holderIdentity", "value": who},
                {"op": "replace", "path": "/spec/renewTime", "value": _micro(clock())},
            ]
            try:
                renewing.patch(f"{_FOLDER}/{NAME}", change, "json")
            except (ApiError, AwayError):
                continue  # an API server that restarts in an upgrade

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join(timeout=5)
        _give_back(api, who)


def _take(api: Api, who: str, doing: str, clock: Callable[[], datetime]) -> None:
    now = clock()
    spec = {
        "holderIdentity": who,
        "leaseDurationSeconds": DURATION,
        "acquireTime": _micro(now),
        "renewTime": _micro(now),
    }
    about = {
        "annotations": {_ABOUT: doing, _PROCESS: str(os.getpid())},
        "labels": {"app.kubernetes.io/managed-by": "causeway"},
    }
    body: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": NAMESPACE, **about},
        "spec": spec,
    }
    try:
        there = api.find(f"{_FOLDER}/{NAME}")
        if there is None:
            api.create(_FOLDER, body)
            return
        _refuse_held(there, who, now)
        # With the version that was read: of two who find it free, one is refused.
        body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        api.replace(f"{_FOLDER}/{NAME}", body)
    except ApiError as problem:
        if problem.code != 409:
            raise
        raise UsageError(
            "somebody else has just started to work on this cluster; run this again later"
        ) from None


def _refuse_held(there: dict[str, Any], who: str, now: datetime) -> None:
    spec = there.get("spec") or {}
    holder = spec.get("holderIdentity")
    about = there["metadata"].get("annotations") or {}
    # One's own that was killed need not be waited for.
    if not holder or (holder == who and not _runs(str(about.get(_PROCESS, "")))):
        return
    renewed = datetime.fromisoformat(str(spec["renewTime"]))
    if now - renewed > timedelta(seconds=int(spec.get("leaseDurationSeconds") or DURATION)):
        return
    doing = about.get(_ABOUT, "work")
    began = spec.get("acquireTime", renewed)
    raise UsageError(
        f"{holder} is at work on this cluster ({doing}, since {began}); wait for it. "
        f"One that was cut off is forgotten after {DURATION // 60} minutes"
    )


def _runs(process: str) -> bool:
    """Whether another process of this machine runs."""
    if not process.isdecimal() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _give_back(api: Api, who: str) -> None:
    try:
        there = api.find(f"{_FOLDER}/{NAME}")
        if there is not None and (there.get("spec") or {}).get("holderIdentity") == who:
            api.patch(f"{_FOLDER}/{NAME}", {"spec": {"holderIdentity": None}})
    except (ApiError, AwayError):
        return  # it is forgotten by itself


def _micro(moment: datetime) -> str:
    """MicroTime, which must have all its digits."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
