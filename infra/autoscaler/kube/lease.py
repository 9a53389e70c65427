"""Leader election by a Lease (coordination.k8s.io/v1), compatible with client-go's.

Clocks of two machines are never compared. A replica that wants the lease waits until it has not changed for
its whole duration, by the replica's own clock. The holder counts from the start of its last successful
renewal and stops after `deadline` seconds: `duration` - `deadline` before another replica may begin, which
is the time left for a write that begins at the last moment.

This requires a clock that advances while a machine sleeps or a process is stopped (CLOCK_BOOTTIME).
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from infra.autoscaler.kube.client import JSON, MERGE, Client, KubeError, RefusedError


def since_boot() -> float:
    """Seconds since boot, including suspend if the kernel supports it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def identity() -> str:
    """A name that is unique to this process, also among its successors."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class Terms:
    """Durations in seconds."""

    duration: float = 30.0
    """How long others wait after the last observed change."""
    deadline: float = 20.0
    """How long the holder acts after the start of its last renewal."""
    retry: float = 4.0
    """Between renewals, and between attempts to acquire it."""

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.deadline < self.duration:
            raise ValueError("a lease needs 0 < retry < deadline < duration")


class _Meta(Struct, rename="camel"):
    resource_version: str = ""


class _Spec(Struct, rename="camel", omit_defaults=True):
    # null if nobody holds it
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_LEASE: Final = msgspec.json.Decoder(_Lease)


class Lease:
    """A candidate for the lease. `held` says whether it may write."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        holder: str,
        *,
        chance: Callable[[], float],
        terms: Terms = Terms(),
        clock: Callable[[], float] = since_boot,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``now`` is only for the times in the object, which are for people."""
        self.holder = holder
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._chance = chance
        self._terms = terms
        self._clock = clock
        self._now = now
        self._until = float("-inf")
        self._seen = ""
        self._changed = 0.0
        self._other = ""
        self._problem = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def held(self) -> bool:
        """Whether a write may begin now."""
        return self._clock() < self._until

    def remaining(self) -> float:
        """Seconds in which writes may still begin; 0 if the lease is not held."""
        return max(0.0, self._until - self._clock())

    @property
    def margin(self) -> float:
        """Maximum seconds of a write that begins at the last moment."""
        return self._terms.duration - self._terms.deadline

    @property
    def other(self) -> str:
        """The other holder, as last seen; empty if there is none."""
        return self._other

    @property
    def problem(self) -> str:
        """Why the last attempt failed; empty if it did not."""
        return self._problem

    def start(self) -> None:
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Release the lease, so that the next holder need not wait. Call it after the last write has
        ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._terms.deadline)
        self.release()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self.step()
            # Candidates retry with jitter; the holder renews on time.
            spread = 0.0 if self.held() else self._terms.retry * self._chance()
            self._stopping.wait(self._terms.retry + spread)

    def step(self) -> bool:
        """One attempt to acquire or renew it; returns whether it is held."""
        began = self._clock()
        try:
            held = self._tried()
            self._problem = ""
        except RefusedError as problem:
            # 409: another replica was faster. Its write is read in the next attempt.
            self._problem = "" if problem.code == 409 else str(problem)
            return self.held()
        except Exception as problem:  # a thread that dies would never acquire it again
            self._problem = str(problem) or type(problem).__name__
            return self.held()
        self._until = began + self._terms.deadline if held else float("-inf")
        return held

    def _tried(self) -> bool:
        body = self._read()
        stamp = self._stamp()
        if body is None:
            self._write("", _Spec(self.holder, self._length, stamp, stamp, 0))
            self._other = ""
            return True
        lease = _LEASE.decode(body)
        spec = lease.spec
        if lease.metadata.resource_version != self._seen:
            self._seen, self._changed = lease.metadata.resource_version, self._clock()
        ours = spec.holder_identity == self.holder
        self._other = "" if ours else spec.holder_identity or ""
        length = spec.lease_duration_seconds or self._terms.duration
        if self._other and self._clock() < self._changed + length:
            return False
        begun = (spec.acquire_time if ours else None) or stamp
        transitions = (spec.lease_transitions or 0) + (0 if ours else 1)
        self._write(self._seen, _Spec(self.holder, self._length, begun, stamp, transitions))
        self._other = ""
        return True

    def release(self) -> None:
        """Release the lease if held. Replicas that do not notice wait for its duration."""
        self._until = float("-inf")
        try:
            body = self._read()
            if body is None:
                return
            lease = _LEASE.decode(body)
            if lease.spec.holder_identity == self.holder:
                stamp = self._stamp()
                spec = _Spec("", 1, stamp, stamp, lease.spec.lease_transitions)
                self._write(lease.metadata.resource_version, spec)
        except (KubeError, msgspec.MsgspecError) as problem:
            self._problem = str(problem)

    def _read(self) -> bytes | None:
        return self._client.find(self._path, tries=1, total=self._terms.retry)

    def _write(self, version: str, spec: _Spec) -> None:
        """Write to this version of the Lease; create it if the version is empty."""
        folder, _, name = self._path.rpartition("/")
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, **({"resourceVersion": version} if version else {})},
            "spec": spec,
        }
        # A merge patch keeps fields of others; with the resource version, it applies to that version only.
        method, path, content = ("PATCH", self._path, MERGE) if version else ("POST", folder, JSON)
        self._client.call(method, path, body=body, content=content, tries=1, total=self._terms.retry)

    @property
    def _length(self) -> int:
        return max(1, round(self._terms.duration))

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
