"""A call to the API: raw bytes in and out, in bounded time, retried where that is safe.

429 and 5xx are retried when the server asks (``Retry-After``); a body that arrives too slowly is abandoned. A
request that the server rejects raises `RefusedError` with its message; a server that does not answer,
`AwayError`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from infra.autoscaler.kube.credentials import Credentials
from infra.errors import DriveError

CONNECT: Final = 5.0
READ: Final = 15.0
"""Timeout in seconds between two parts of a response."""
TOTAL: Final = 30.0
"""Timeout in seconds of a call including retries."""
BIGGEST: Final = 512 * 2**20
"""Maximum bytes of a response; this API never sends more."""
LONGEST: Final = 64 * 2**20
"""Maximum bytes of one line of a watch. etcd does not store objects of more than a few MiB."""

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"

_PIECE: Final = 2**18
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
_FIRST: Final = 0.25
_MOST: Final = 8.0


class KubeError(DriveError):
    """A call to the Kubernetes API failed."""


class AwayError(KubeError):
    """The API does not answer, or not completely."""


class SilentError(AwayError):
    """The connection was silent for too long."""


class RefusedError(KubeError):
    """The API refused. ``code`` is the HTTP status, ``reason`` Kubernetes' reason (``Conflict``)."""

    def __init__(
        self,
        message: str,
        code: int,
        reason: str = "",
        *,
        wait: float | None = None,
        causes: tuple[str, ...] = (),
        whole: bool = True,
    ) -> None:
        self.code = code
        self.reason = reason
        self.wait = wait
        """Seconds after which the server asks to retry."""
        self.causes = causes
        self.whole = whole
        """Whether the response is from Kubernetes itself (a Status), not from a proxy."""
        super().__init__(f"{message} ({code})")


class _Cause(Struct):
    reason: str = ""
    message: str = ""


class _Details(Struct, rename="camel"):
    causes: tuple[_Cause, ...] = ()
    retry_after_seconds: float = 0


class Status(Struct):
    """Kubernetes' response without an object (meta/v1 Status)."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(Status, strict=False)


class Client:
    """A thread-safe client."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        chance: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        agent: str = "causeway-autoscaler",
    ) -> None:
        """``chance`` returns random numbers in [0, 1) as ``random.Random().random`` does; used for jitter."""
        self._credentials = credentials
        self._chance = chance
        self._clock = clock
        self._sleep = sleep
        self._agent = agent

    def get(
        self, path: str, query: Mapping[str, str] | None = None, *, tries: int = 4, total: float = TOTAL
    ) -> bytes:
        """An object, or one page of a list."""
        return self.call("GET", path, query=query, tries=tries, total=total)

    def find(self, path: str, *, tries: int = 4, total: float = TOTAL) -> bytes | None:
        """An object, or None if it does not exist."""
        try:
            return self.get(path, tries=tries, total=total)
        except RefusedError as problem:
            if problem.code == 404:
                return None
            raise

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = JSON,
        tries: int = 4,
        total: float = TOTAL,
    ) -> bytes:
        """The body of the response. Raises ``RefusedError`` or ``AwayError``; ``body`` is serialized by
        msgspec.

        Callers must make writes safe to repeat: by a resource version or a uid in the request.
        """
        data = None if body is None else msgspec.json.encode(body)
        ends = self._clock() + total
        for attempt in range(1, tries + 1):
            try:
                return self._once(method, path, query, data, content, ends)
            except RefusedError as problem:
                if problem.code == 401 and attempt == 1:
                    self._credentials.refused()
                elif problem.code not in _PASSING:
                    raise
                pause, said = problem.wait, problem
            except AwayError as problem:
                pause, said = None, problem  # type: ignore[assignment]
            # Half of each wait is random, so that clients do not retry simultaneously.
            pause = max(pause or 0.0, min(_MOST, _FIRST * 2.0**attempt) * (0.5 + self._chance() / 2))
            if attempt == tries or self._clock() + pause >= ends:
                raise said
            self._sleep(pause)
        raise AssertionError("unreachable")

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content: str,
        ends: float,
    ) -> bytes:
        left = max(0.1, ends - self._clock())
        response = self._open(method, path, query, data, content, min(CONNECT, left), min(READ, left))
        with _closing(response):
            body = b"".join(self._pieces(response, path, ends))
        if response.status >= 300:
            raise refusal(method, path, response.status, body, response.headers.get("Retry-After"))
        return body

    def _pieces(self, response: Any, path: str, ends: float) -> Iterator[bytes]:
        size = 0
        while piece := _read(response, path):
            yield piece
            size += len(piece)
            if self._clock() > ends:
                raise AwayError(f"the API's answer to {path} is too slow: {size} bytes in time")
            if size > BIGGEST:
                raise AwayError(f"the API's answer to {path} has no end: {size} bytes")

    @contextmanager
    def stream(self, path: str, query: Mapping[str, str], *, silence: float) -> Iterator[Stream]:
        """A watch, open until the block ends. Raises ``SilentError`` after ``silence`` seconds without a
        byte."""
        response = self._open("GET", path, query, None, JSON, CONNECT, silence)
        with _closing(response):
            if response.status != 200:
                body = b"".join(self._pieces(response, path, self._clock() + READ))
                problem = refusal("GET", path, response.status, body, response.headers.get("Retry-After"))
                if problem.code == 401:
                    self._credentials.refused()
                raise problem
            yield Stream(response, path)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content: str,
        connect: float,
        read: float,
    ) -> Any:
        import urllib3

        way = self._credentials.way()
        headers = {"accept": "application/json", "user-agent": self._agent, **way.headers}
        if data is not None:
            headers["content-type"] = content
        url = f"{way.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            return way.pool.request(
                method,
                url,
                body=data,
                headers=headers,
                preload_content=False,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=connect, read=read),
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
            raise away(path, problem) from None


class Stream:
    """A stream of lines."""

    def __init__(self, response: Any, path: str) -> None:
        self._response = response
        self._path = path

    def batches(self) -> Iterator[list[bytes]]:
        """Lines, in batches as they arrive; ends when the server ends the stream. Raises ``AwayError`` if it
        breaks."""
        rest: list[bytes] = []
        size = 0
        while piece := _read(self._response, self._path):
            *lines, tail = piece.split(b"\n")
            if lines:
                lines[0] = b"".join((*rest, lines[0]))
                rest, size = [], 0
                yield [line for line in lines if line.strip()]
            if tail:
                rest.append(tail)
                size += len(tail)
                if size > LONGEST:
                    raise AwayError(f"a line of {self._path} has no end: {size} bytes")
        if size:
            raise AwayError(f"{self._path} was cut in the middle of a line")

    def end(self) -> None:
        """End the stream from another thread, waking the reader."""
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            return  # it has ended already


def _read(response: Any, path: str) -> bytes:
    import urllib3

    try:
        piece: bytes = response.read1(_PIECE)
    except urllib3.exceptions.ReadTimeoutError:
        raise SilentError(f"the API does not complete its answer to {path}") from None
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
        raise away(path, problem) from None
    return piece


@contextmanager
def _closing(response: Any) -> Iterator[None]:
    """A response that was not read completely closes its connection; others return it to the pool."""
    try:
        yield
    finally:
        if not response.isclosed():
            response.close()


def refusal(method: str, path: str, code: int, body: bytes, after: str | None = None) -> RefusedError:
    """The error in the server's words."""
    whole = True
    try:
        status = _STATUS.decode(body)
        whole = status.kind == "Status"
    except msgspec.MsgspecError:
        status, whole = Status(message=body[:300].decode(errors="replace").strip()), False
    details = status.details or _Details()
    wait: float | None = details.retry_after_seconds or None
    if after is not None and after.strip().isdigit():
        wait = float(after)
    words = status.message if len(status.message) <= 500 else f"{status.message[:500]}…"
    return RefusedError(
        f"the API refused {method} {path.partition('?')[0]}: {words or 'no reason given'}",
        code,
        status.reason,
        wait=wait,
        causes=tuple(f"{each.reason}: {each.message}" for each in details.causes),
        whole=whole,
    )


def away(path: str, problem: Exception) -> AwayError:
    """The error in one line, without class names of urllib3."""
    said = str(getattr(problem, "reason", None) or problem).strip() or type(problem).__name__
    line = said.splitlines()[-1].rpartition("): ")[2]
    return AwayError(f"the API does not answer to {path}: {line}")
