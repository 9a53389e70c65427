"""boto3 clients with short timeouts, one for each service and region, and their errors as messages.

botocore finds credentials and endpoints: in the environment, a web identity, or the machine's role.
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
"""Characters of AWS's own words that are passed on; an encoded authorisation message has thousands."""


class Patience(Struct, frozen=True):
    """How long a call may take. One that is not answered is made ``attempts`` times in all."""

    connect: float = 3.0
    """Seconds to reach AWS."""
    read: float = 15.0
    """Seconds without a byte of the answer."""
    attempts: int = 3
    """botocore waits a second or so between them, longer each time (retry mode ``standard``)."""


READING: Final = Patience()
WRITING: Final = Patience(connect=2.0, read=7.0, attempts=1)
"""A write ends sooner than another may have the lease, and is not made twice where the answer is lost."""


class Clients:
    """boto3's clients. May be shared by threads: so may each of them, and a lock is round what makes them."""

    def __init__(self, patience: Patience = READING) -> None:
        self._patience = patience
        self._lock = Lock()
        self._session: Any = None
        self._made: dict[tuple[str, str], Any] = {}

    def get(self, service: str, region: str) -> Any:
        """``autoscaling`` or ``ec2`` of a region; may raise botocore's errors, as its calls may."""
        with self._lock:
            if (service, region) not in self._made:
                self._made[service, region] = self._make(service, region)
            return self._made[service, region]

    def _make(self, service: str, region: str) -> Any:
        import boto3
        from botocore.config import Config

        library: Any = boto3  # it has no annotations
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
    """What a call raises: AWS refuses, it can't be asked, or something else answers in its place."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError


def code(problem: Exception) -> str:
    """AWS's word for a refusal (``ValidationError``), or botocore's for what it could not ask."""
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", "unknown"))
    return type(problem).__name__


def message(problem: Exception) -> str:
    """What AWS says about a refusal; botocore's text for what it could not ask."""
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Message") or "")
    return str(problem)


def refused(problem: Exception) -> bool:
    """Whether AWS surely did nothing: it answered, and said no (HTTP 4xx), or was never reached."""
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        return 400 <= int(status) < 500 or throttled(problem)
    return away(problem) and not _asked(problem)


def throttled(problem: Exception) -> bool:
    """Whether AWS did nothing, because there are too many calls."""
    return code(problem) in _CODES_OF_TOO_MANY


def away(problem: Exception) -> bool:
    """Whether there was no answer: nothing listens, the way there is cut, or it takes too long."""
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.exceptions import HTTPClientError

    return isinstance(problem, (NoConnection, HTTPClientError))


def _asked(problem: Exception) -> bool:
    """Whether the request may have arrived although no answer did."""
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

    return not isinstance(problem, (ConnectTimeoutError, EndpointConnectionError))


def words(problem: Exception) -> str:
    """An error in one line for people: AWS's code, what it says, what to do about the usual ones."""
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
