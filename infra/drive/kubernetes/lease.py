"""Mutual exclusion of commands: a Lease in the cluster names its holder (coordination.k8s.io/v1).

It is renewed during the work. If it is not renewed for two minutes, it is considered abandoned, such as by a
closed laptop.
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
    """Hold the Lease while the block runs. Raises ``UsageError``, naming the holder, if another holds it.

    ``renewing`` is a second connection, for the thread that renews it.
    """
    _take(api, who, doing, clock)
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(_BEAT):
            change = [
                # Another command may have taken it over while this computer slept.
                {"op": "test", "path": "/spec/holderIdentity", "value": who},
                {"op": "replace", "path": "/spec/renewTime", "value": _micro(clock())},
            ]
            try:
                renewing.patch(f"{_FOLDER}/{NAME}", change, "json")
            except (ApiError, AwayError):
                continue  # an API server that restarts during an upgrade

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
        # With the resourceVersion: of two commands that find it free, one is refused.
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
    # A lease of a killed process on this computer is taken over immediately.
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
    """Whether another process of this computer is running."""
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
        return  # it expires by itself


def _micro(moment: datetime) -> str:
    """A MicroTime, which must have six digits of microseconds."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
