"""boto3 clients with short timeouts, one per service and region, and their errors as messages.

botocore finds credentials and endpoints: in the environment, by a web identity, or the machine's role.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

from msgspec import Struct

_CODES_OF_TOO_MANY: Final = {
    "EC2ThrottledException",
    "PriorRequestNotComplete",
    "RequestLimitExceeded",
    "RequestThrottled",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_CODES_OF_DENIED: Final = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_LONGEST: Final = 300
"""Maximum characters of AWS's message; an encoded authorization message has thousands."""


class Patience(Struct, frozen=True):
    """Timeouts of a call. A call without response is tried ``attempts`` times in total."""

    connect: float = 3.0
    """Seconds to reach AWS."""
    read: float = 15.0
    """Seconds without a byte of the response."""
    attempts: int = 3
    """botocore waits about a second between attempts, with exponential backoff (retry mode ``standard``)."""


READING: Final = Patience()
WRITING: Final = Patience(connect=2.0, read=7.0, attempts=1)
"""A write must end before another replica may hold the lease, and is not repeated if its response is lost."""


class Clients:
    """boto3 clients. Thread-safe: clients are, and their creation is locked."""

    def __init__(self, patience: Patience = READING) -> None:
        self._patience = patience
        self._lock = Lock()
        self._session: Any = None
        self._made: dict[tuple[str, str], Any] = {}

    def get(self, service: str, region: str) -> Any:
        """The client of ``autoscaling`` or ``ec2`` in a region. May raise botocore's errors, as its calls
        may."""
        with self._lock:
            if (service, region) not in self._made:
                self._made[service, region] = self._make(service, region)
            return self._made[service, region]

    def _make(self, service: str, region: str) -> Any:
        import boto3
        from botocore.config import Config

        library: Any = boto3  # no type annotations
        if self._session is None:
            self._session = library.session.Session()
        settings: Any = Config
        return self._session.client(
            service,
            region_name=region,
            config=settings(
                connect_timeout=self._patience.connect,
                read_timeout=self._patience.read,
                retries={"mode": "standard", "total_max_attempts": self._patience.attempts},
                max_pool_connections=16,
                tcp_keepalive=True,
            ),
        )


def errors() -> tuple[type[Exception], ...]:
    """What a call raises: AWS refuses it, it cannot be sent, or something else answers."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError


def code(problem: Exception) -> str:
    """AWS's error code (``ValidationError``), or botocore's exception if the call could not be made."""
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", "unknown"))
    return type(problem).__name__


def message(problem: Exception) -> str:
    """AWS's message, or botocore's text if the call could not be made."""
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Message") or "")
    return str(problem)


def refused(problem: Exception) -> bool:
    """Whether AWS certainly did nothing: it refused (HTTP 4xx), or was never reached."""
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        return 400 <= int(status) < 500 or throttled(problem)
    return away(problem) and not _asked(problem)


def throttled(problem: Exception) -> bool:
    """Whether AWS did nothing because of throttling."""
    return code(problem) in _CODES_OF_TOO_MANY


def away(problem: Exception) -> bool:
    """Whether there was no response: connection refused, network down, or timeout."""
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.exceptions import HTTPClientError

    return isinstance(problem, (NoConnection, HTTPClientError))


def _asked(problem: Exception) -> bool:
    """Whether the request may have been received although there was no response."""
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

    return not isinstance(problem, (ConnectTimeoutError, EndpointConnectionError))


def words(problem: Exception) -> str:
    """An error in one line for people: AWS's code, its message, and the fix for common ones."""
    what = code(problem)
    said = " ".join(message(problem).split())
    if len(said) > _LONGEST:
        said = f"{said[:_LONGEST]} …"
    text = f"{what}: {said}" if said else what
    if what in _CODES_OF_DENIED:
        return f"{text}; the autoscaler's role lacks a permission"
    if throttled(problem):
        return f"{text}; too many calls in this account, tried again in the next loop"
    if away(problem):
        return f"{text}; AWS, or the way there, does not answer"
    return text
