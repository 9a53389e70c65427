"""A cache of each kind, maintained by a list and a watch that continues from it.

There is one thread for each kind. A loop copies the cache without waiting, and only changes are decoded. An
error affects only its kind: the cache stays as it was, `Parts.errors` records the reason and the time, and
the thread retries with increasing, randomised delays.

Lists come in pages and are consistent (no resource version is asked for). They are preferred to WatchList
(``sendInitialEvents``), which not every server supports, because a page is decoded many times faster than
single lines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from infra.autoscaler.kube.client import AwayError, Client, RefusedError, SilentError, Status, Stream, refusal
from infra.autoscaler.kube.kinds import KINDS, Kind


class Listed(Protocol):
    """A page of a list."""

    @property
    def version(self) -> str: ...
    @property
    def next_token(self) -> str | None: ...
    @property
    def objects(self) -> Mapping[str, Any]: ...
    @property
    def faults(self) -> Mapping[str, str]: ...


class Decoder(Protocol):
    """Decodes bytes to objects."""

    def list(self, kind: str, body: bytes) -> Listed: ...
    def item(self, kind: str, raw: bytes) -> tuple[str, Any, str]: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds."""

    first: float = 0.5
    """Before the first retry."""
    most: float = 30.0
    """The maximum between two retries."""
    absent: float = 60.0
    """Before an absent or forbidden kind is tried again."""
    grace: float = 30.0
    """How long the cache of a kind is kept after the API no longer serves it, as an API server that is
    starting may not know it yet. Also how long an optional kind that fails is waited for at first."""
    silence: float = 45.0
    """Without a line, after which a watch is restarted to check the connection. Bookmarks cannot be relied
    on: for a kind that does not change, the server sends none."""
    watch: float = 300.0
    """The minimum duration of a watch, and half the maximum: the server ends it, which balances load over
    servers."""
    list: float = 120.0
    """Timeout of one page."""
    settled: float = 10.0
    """A watch of this duration ends a series of failures."""
    stale: float = 60.0
    """Data older than this is not `Watcher.healthy`."""


PAGE: Final = 2000
"""Objects per page: some 8 MiB of pods."""

_PATIENCE: Final = 3
"""Consecutive failed watches after which the kind is listed again."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The caches at one moment."""

    objects: Mapping[str, dict[str, Any]]
    """Kind → key → object. The dicts belong to the caller."""
    errors: Mapping[str, str]
    """``kube/pods`` → why it is outdated, and its age."""
    faults: Mapping[str, str]
    """``Pod/ns/name`` → why it was left out."""


class _Meta(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Named(Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Event(Struct):
    type: str
    object: msgspec.Raw


_EVENT: Final = msgspec.json.Decoder(_Event)
_NAMED: Final = msgspec.json.Decoder(_Named)


@dataclass(slots=True)
class _Watched:
    """A kind's cache and its state."""

    kind: Kind
    objects: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    path: int = 0
    version: str = ""
    """Empty if it must be listed."""
    seen: float | None = None
    """When it was last known to be current. An open watch counts until it ended: a dead peer is detected
    after `Timing.silence`."""
    open: bool = False
    """Whether a watch is open, so that the cache is current."""
    tried: bool = False
    """Whether the first result is known: objects, none, or a failure."""
    absent: float | None = None
    """Since when the API has not served the kind."""
    problem: str = ""
    failing: float | None = None
    """Since when it has been failing."""
    failures: int = 0
    moved: bool = False
    """Whether this watch delivered an event."""
    stream: Stream | None = None


class Watcher:
    """The caches of all kinds. Once stopped, it cannot be started again."""

    def __init__(
        self,
        client: Client,
        decoder: Decoder,
        *,
        chance: Callable[[], float],
        kinds: Sequence[Kind] = KINDS,
        timing: Timing = Timing(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``chance`` returns random numbers in [0, 1), used for jitter."""
        self._client = client
        self._decoder = decoder
        self._chance = chance
        self._timing = timing
        self._clock = clock
        self._watched = [_Watched(kind) for kind in kinds]
        self._lock = threading.Condition()
        self._decoding = threading.Lock()  # equal shapes are shared between kinds
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for watched in self._watched:
            thread = threading.Thread(
                target=self._keep, args=(watched,), name=f"watch-{watched.kind.plural}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the watches. Those that do not end in time are abandoned, as they hold nothing."""
        self._stopping.set()
        with self._lock:
            streams = [each.stream for each in self._watched if each.stream is not None]
        for stream in streams:
            stream.end()
        ends = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    @property
    def ready(self) -> bool:
        """Whether all kinds have been read once: earlier decisions would be based on incomplete data."""
        with self._lock:
            return self._ready()

    @property
    def healthy(self) -> bool:
        """Whether all required kinds are current, or were recently, so that decisions may be executed."""
        with self._lock:
            return self._ready() and all(
                self._age(each) <= self._timing.stale for each in self._watched if each.kind.required
            )

    def wait(self, timeout: float) -> bool:
        """Wait until it is `ready`; False after the timeout."""
        with self._lock:
            return self._lock.wait_for(self._ready, timeout)

    def parts(self) -> Parts:
        """Copies of all caches, taken at one moment."""
        with self._lock:
            return Parts(
                objects={each.kind.name: dict(each.objects) for each in self._watched},
                errors={
                    f"kube/{each.kind.plural}": text for each in self._watched if (text := self._told(each))
                },
                faults={
                    f"{each.kind.name}/{key}": why
                    for each in self._watched
                    for key, why in each.faults.items()
                },
            )

    @property
    def errors(self) -> Mapping[str, str]:
        """``kube/pods`` → why it is outdated, and its age."""
        return self.parts().errors

    def path(self, kind: str) -> str | None:
        """The path of a kind in the API; None if it is not served."""
        with self._lock:
            for each in self._watched:
                if each.kind.name == kind and each.seen is not None and each.absent is None:
                    return each.kind.paths[each.path]
        return None

    def _ready(self) -> bool:
        return all(
            each.seen is not None if each.kind.required else each.tried or self._despaired_of(each)
            for each in self._watched
        )

    def _despaired_of(self, watched: _Watched) -> bool:
        """Whether to stop waiting for a kind: pods of a gang whose object is not seen would count as single
        pods, so it is waited for, but not forever."""
        return watched.failing is not None and self._clock() - watched.failing >= self._timing.grace

    def _age(self, watched: _Watched) -> float:
        """Seconds since it was current."""
        if watched.open:
            return 0.0
        return float("inf") if watched.seen is None else self._clock() - watched.seen

    def _told(self, watched: _Watched) -> str:
        if watched.problem:
            if watched.seen is None:
                return f"{watched.problem}; never read yet"
            return f"{watched.problem}; what is known is {self._age(watched):.0f} s old"
        if watched.seen is None and not watched.tried:
            return "not read yet"
        if watched.kind.required and (age := self._age(watched)) > self._timing.stale:
            return f"no answer for {age:.0f} s"
        return ""

    # A kind's thread.

    def _keep(self, watched: _Watched) -> None:
        while not self._stopping.is_set():
            pause = self._turn(watched)
            if pause > 0:
                self._stopping.wait(pause)

    def _turn(self, watched: _Watched) -> float:
        """One list or watch; returns the seconds to wait before the next."""
        began, watched.moved = self._clock(), False
        try:
            if not watched.version:
                self._list(watched)
            self._watch(watched)
        except RefusedError as refused:
            if refused.code == 404:
                return self._unknown(watched, str(refused))
            if refused.code in (401, 403) and not watched.kind.required:
                return self._barred(watched, str(refused))
            if refused.code in (400, 410):
                watched.version = ""
            # An expired resource version is not a failure.
            problem, asked = ("" if refused.code == 410 else str(refused)), refused.wait
        except Exception as error:  # a thread that dies would leave its cache outdated forever
            problem, asked = _words(error), None
            if not isinstance(error, AwayError):
                watched.version = ""
        else:
            problem, asked = "", None
            if self._clock() - began >= self._timing.first:
                watched.failures = 0
                return 0.0
        finally:
            self._closed(watched)
        if watched.moved or self._clock() - began >= self._timing.settled:
            watched.failures = 0
        watched.failures += 1
        if watched.failures >= _PATIENCE:
            watched.version = ""
        self._failed(watched, problem)
        return max(self._pause(watched.failures), asked or 0.0)

    def _pause(self, failures: int) -> float:
        longest = min(self._timing.most, self._timing.first * 2.0 ** min(failures - 1, 16))
        return longest * (0.5 + self._chance() / 2)

    def _list(self, watched: _Watched) -> None:
        path = watched.kind.paths[watched.path]
        objects: dict[str, Any] = {}
        faults: dict[str, str] = {}
        token: str | None = ""
        paged = True
        while token is not None:
            query = dict(watched.kind.query)
            if paged:
                query["limit"] = str(PAGE)
            if token:
                query["continue"] = token
            try:
                body = self._client.get(path, query, tries=2, total=self._timing.list)
            except RefusedError as refused:
                if refused.code != 410 or not token:
                    raise
                # The resource version expired between pages: list without paging, as client-go does.
                objects, faults, token, paged = {}, {}, "", False
                continue
            with self._decoding:
                page = self._decoder.list(watched.kind.name, body)
            objects.update(page.objects)
            faults.update(page.faults)
            version, token = page.version, page.next_token or None
            if self._stopping.is_set():
                return
        with self._lock:
            watched.objects, watched.faults, watched.version = objects, faults, version
            watched.seen, watched.tried, watched.absent, watched.problem = self._clock(), True, None, ""
            watched.failing = None
            self._lock.notify_all()

    def _watch(self, watched: _Watched) -> None:
        if self._stopping.is_set():
            return
        path = watched.kind.paths[watched.path]
        length = self._timing.watch * (1 + self._chance())
        query = {
            **watched.kind.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": watched.version,
            "timeoutSeconds": str(max(1, int(length))),
        }
        silence = self._timing.silence * (0.75 + self._chance() / 4)
        with self._client.stream(path, query, silence=silence) as stream:
            with self._lock:
                watched.stream, watched.open, watched.problem = stream, True, ""
                watched.seen = self._clock()
            if self._stopping.is_set():
                return  # the stopping thread may not have seen this stream
            try:
                for lines in stream.batches():
                    self._apply(watched, lines)
            except SilentError:
                return  # no event may have occurred: the next watch continues from the same version

    def _apply(self, watched: _Watched, lines: Sequence[bytes]) -> None:
        changes: list[tuple[str, Any, str | None]] = []
        version, ended = "", b""
        with self._decoding:
            for line in lines:
                try:
                    event = _EVENT.decode(line)
                except RecursionError:  # no valid object is nested so deep: the cached one is kept
                    continue
                if event.type == "ERROR":
                    ended = bytes(event.object)
                    break
                if event.type != "BOOKMARK":
                    change, version = self._change(watched.kind.name, event)
                    changes.append(change)
                else:
                    version = _NAMED.decode(event.object).metadata.resource_version or version
        with self._lock:
            for key, found, fault in changes:
                watched.faults.pop(key, None)
                if found is not None:
                    watched.objects[key] = found
                    continue
                watched.objects.pop(key, None)
                if fault is not None:
                    watched.faults[key] = fault
            watched.version = version or watched.version
            watched.seen, watched.moved = self._clock(), bool(version) or watched.moved
        if ended:
            # The HTTP status was 200; the error's code is in the object.
            code = msgspec.json.decode(ended, type=Status).code
            raise refusal("watch", watched.kind.paths[watched.path], code or 500, ended)

    def _change(self, kind: str, event: _Event) -> tuple[tuple[str, Any, str | None], str]:
        """(key, object or None, fault or None) and the version."""
        raw = bytes(event.object)
        try:
            key, found, version = self._decoder.item(kind, raw)
        except Exception as error:  # one invalid object must not affect others
            meta = _NAMED.decode(raw).metadata
            key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
            gone = event.type == "DELETED"
            return (key, None, None if gone else _words(error)), meta.resource_version
        return (key, None if event.type == "DELETED" else found, None), version

    def _unknown(self, watched: _Watched, problem: str) -> float:
        """404: try the next version of the kind; if there is none, it is absent."""
        now = self._clock()
        watched.version = ""
        watched.path = (watched.path + 1) % len(watched.kind.paths)
        if watched.path:
            return 0.0
        if watched.kind.required:
            watched.failures += 1
            self._failed(watched, problem)
            return self._pause(watched.failures)
        with self._lock:
            watched.absent = now if watched.absent is None else watched.absent
            if not watched.objects or now - watched.absent >= self._timing.grace:
                watched.objects, watched.faults = {}, {}
                watched.seen, watched.tried, watched.problem = now, True, ""
            self._lock.notify_all()
            kept = bool(watched.objects)
        watched.failures = 0
        return (self._timing.grace / 3 if kept else self._timing.absent) * (0.5 + self._chance() / 2)

    def _barred(self, watched: _Watched, problem: str) -> float:
        """401 or 403 for an optional kind."""
        watched.tried = True
        self._failed(watched, problem)
        return self._timing.absent * (0.5 + self._chance() / 2)

    def _failed(self, watched: _Watched, problem: str) -> None:
        with self._lock:
            watched.problem = problem or watched.problem
            watched.failing = self._clock() if watched.failing is None else watched.failing
            self._lock.notify_all()

    def _closed(self, watched: _Watched) -> None:
        with self._lock:
            if watched.open:
                watched.seen = self._clock()
            watched.open, watched.stream = False, None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
