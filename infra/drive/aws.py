"""AWS's APIs: clients, calls in several regions in parallel, and readable error messages.

::

    aws = Aws(env)

    def newest(region: str) -> str:
        with aws_errors(f"look for images in {region}", quoting=True):
            return aws.client("ec2", region).describe_images(...)["Images"][0]["ImageId"]

    images = each_region(["us-west-2", "eu-west-1"], newest)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any, Final, TypeVar

from infra.errors import DriveError

_T = TypeVar("_T")

CONNECT_TIMEOUT: Final = 5
"""Seconds."""

_AT_ONCE: Final = 16
"""Regions that are called in parallel."""

_DENIED: Final = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_LOGIN: Final = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "RequestExpired",
    "UnrecognizedClientException",
}
_THROTTLED: Final = {
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TooManyUpdates",
}

_NO_CREDENTIALS: Final = {
    "CredentialRetrievalError",
    "LoginError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "RefreshWithMFAUnsupportedError",
    "SSOError",
    "TokenRetrievalError",
}
"""botocore's exception classes; some exist in some releases only."""
_NO_NETWORK: Final = {"ConnectionError", "HTTPClientError"}


class AwsError(DriveError):
    """An AWS call was refused, or could not be made."""

    def __init__(self, text: str, code: str) -> None:
        self.code = code
        """AWS's error code (``InvalidAMIID.NotFound``), else botocore's exception
        (``NoCredentialsError``)."""
        super().__init__(text)


class RegionsError(DriveError):
    """An operation over several regions failed in at least one of them."""

    def __init__(self, done: Mapping[str, Any], failed: Mapping[str, DriveError]) -> None:
        self.done = done
        """Region → the result of the work."""
        self.failed = failed
        """Region → the error."""
        super().__init__("\n".join(f"{region}: {problem}" for region, problem in failed.items()))


class Aws:
    """The APIs of one account. Thread-safe; clients are cached by service and region."""

    def __init__(self, env: Mapping[str, str], *, attempts: int = 5, read_timeout: int = 60) -> None:
        """``env`` is the environment that Terraform gets: credentials, AWS_PROFILE, AWS_ENDPOINT_URL.
        ``attempts``: how often a call is tried if AWS throttles or fails it; AWS_MAX_ATTEMPTS overrides
        it. ``read_timeout``: seconds without a byte of the response."""
        self._env = env
        wanted = env.get("AWS_MAX_ATTEMPTS", "")
        self._attempts = int(wanted) if wanted.isdecimal() and int(wanted) else attempts
        self._read_timeout = read_timeout
        self._lock = Lock()
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, region: str = "") -> Any:
        """A boto3 client; by default in the region of the environment or the profile.

        May raise botocore's errors, as its calls may: use it within ``aws_errors``.
        """
        with self._lock:  # clients are thread-safe, but creating them is not
            if (service, region) not in self._clients:
                self._clients[service, region] = self._made(service, region)
            return self._clients[service, region]

    def _made(self, service: str, region: str) -> Any:
        import botocore.config

        library: Any = botocore.config  # no type annotations
        of_service = self._core.get_service_model(service).service_id.replace(" ", "_").upper()
        endpoint = self._get(f"AWS_ENDPOINT_URL_{of_service}") or self._get("AWS_ENDPOINT_URL")
        return self._session.client(
            service,
            region_name=region or self._get("AWS_REGION") or self._get("AWS_DEFAULT_REGION"),
            endpoint_url=endpoint,
            config=library.Config(
                connect_timeout=CONNECT_TIMEOUT,
                read_timeout=self._read_timeout,
                retries={"mode": "standard", "total_max_attempts": self._attempts},
                # At a custom endpoint, bucket names usually cannot be resolved as host names.
                s3={"addressing_style": "path"} if endpoint else None,
            ),
        )

    @cached_property
    def _session(self) -> Any:
        import boto3

        library: Any = boto3  # no type annotations
        return library.Session(
            botocore_session=self._core,
            aws_access_key_id=self._get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=self._get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=self._get("AWS_SESSION_TOKEN"),
        )

    @cached_property
    def _core(self) -> Any:
        import botocore.session

        core: Any = botocore.session.Session(profile=self._get("AWS_PROFILE"))
        for variable, setting in (
            ("AWS_CONFIG_FILE", "config_file"),
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials_file"),
        ):
            if variable in self._env:
                core.set_config_variable(setting, self._env[variable])
        return core

    def _get(self, variable: str) -> str | None:
        """An empty value counts as unset."""
        return self._env.get(variable) or None


def account(env: Mapping[str, str]) -> str:
    """The account id of the credentials."""
    with aws_errors("identify these credentials", quoting=True):
        return str(
            Aws(env).client("sts", env.get("AWS_REGION") or "us-east-1").get_caller_identity()["Account"]
        )


def each_region(regions: Iterable[str], work: Callable[[str], _T]) -> dict[str, _T]:
    """Call ``work`` for all regions in parallel: region → result, in the order of ``regions``.

    Every region is completed even if another fails. Then raises ``RegionsError`` with the results.
    """
    ordered = list(dict.fromkeys(regions))

    def one(region: str) -> tuple[_T | None, DriveError | None]:
        try:
            return work(region), None
        except DriveError as problem:
            return None, problem

    done: dict[str, Any] = {}
    failed: dict[str, DriveError] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for region, (result, problem) in zip(ordered, pool.map(one, ordered), strict=True):
            if problem is None:
                done[region] = result
            else:
                failed[region] = problem
    if failed:
        raise RegionsError(done, failed)
    return done


def errors() -> tuple[type[Exception], ...]:
    """What a botocore call raises: AWS refuses it, it cannot be sent, or something else answers."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    # The last one is raised for the page of a captive portal or a proxy.
    return BotoCoreError, ClientError, ResponseParserError


@contextmanager
def aws_errors(
    doing: str,
    *,
    needs: Collection[str] = (),
    advice: Mapping[str, str] | None = None,
    quoting: bool = False,
) -> Iterator[None]:
    """Turn botocore's errors into ``AwsError``: ``AWS refuses to <doing>`` or ``can't <doing>``, with a fix.

    ``needs``: the IAM actions of the call. ``advice``: AWS error code → fix, before the general ones.
    ``quoting``: include AWS's message; only for calls that send no secret, which AWS may repeat. For the
    same reason, botocore's debug log, which contains whole requests, is disabled meanwhile.
    """
    with _SHUT:
        try:
            yield
        except errors() as problem:
            raise _in_words(problem, doing, needs, advice or {}, quoting=quoting) from None


def _in_words(
    problem: Exception, doing: str, needs: Collection[str], advice: Mapping[str, str], *, quoting: bool
) -> AwsError:
    response = getattr(problem, "response", None)
    if isinstance(response, dict):
        said = response.get("Error", {})
        code = str(said.get("Code", "unknown"))
        reason = f"{code}: {said['Message']}" if quoting and said.get("Message") else code
        remedy = advice.get(code) or _remedy(code, needs)
        return AwsError(f"AWS refuses to {doing} ({reason}); {remedy}", code)
    kinds = [each.__name__ for each in type(problem).__mro__]
    reason = f"{kinds[0]}: {problem}" if quoting else kinds[0]
    if not _NO_CREDENTIALS.isdisjoint(kinds):
        remedy = "log in to AWS, or name a profile that can; check credentials with: invoke doctor"
    elif not _NO_NETWORK.isdisjoint(kinds):
        remedy = "AWS or the network does not answer; check the region and the network: invoke doctor"
    elif kinds[0] == "ResponseParserError":
        remedy = "the answer is not from AWS; look for a proxy, or a network that wants you to log in"
    else:
        remedy = "check the credentials, the region and the network with: invoke doctor"
    return AwsError(f"can't {doing} ({reason}); {remedy}", kinds[0])


def _remedy(code: str, needs: Collection[str]) -> str:
    if code in _DENIED:
        what = ", ".join(needs) or "it"
        return f"your IAM policy must allow {what} there; to see your identity: invoke doctor"
    if code in _LOGIN:
        return "log in to AWS again; check credentials with: invoke doctor"
    if code in _THROTTLED:
        return "too many concurrent calls in this account; run this again in a minute"
    if code == "OptInRequired":
        return "the account has to be enabled for this service or this region first; see: invoke doctor"
    return "run this again; if it persists, see the AWS documentation of that code"


class _Shut:
    """Suppresses a library's debug messages while any thread is inside, whatever the log level."""

    def __init__(self, logger: str) -> None:
        self._logger = logging.getLogger(logger)
        self._lock = Lock()
        self._within = 0
        self._before = logging.NOTSET

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._before = self._logger.level
                self._logger.setLevel(max(self._logger.getEffectiveLevel(), logging.INFO))
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                self._logger.setLevel(self._before)


_SHUT: Final = _Shut("botocore")
