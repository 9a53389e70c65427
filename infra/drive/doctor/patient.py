"""What is examined, and what comes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

State: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. ``fix`` is what to do; empty when all is well."""

    check: str
    state: State
    said: str
    fix: str = ""


@dataclass(frozen=True)
class Patient:
    """What is examined, as plain values. Empty ones leave their checks out."""

    options: str
    """What names the environment on a command line: ``--env lab``."""
    build: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """As Terraform would see it: credentials, AWS_ENDPOINT_URL."""
    uses_aws: bool = True
    embedded: bool = False
    """Against the embedded AWS, where an account's limits mean nothing."""
    account: str | None = None
    profile: str | None = None
    regions: tuple[str, ...] = ()
    """AWS regions; the first is the primary one."""
    bucket: str | None = None
    """Of the state."""
    bucket_region: str | None = None
    vcpus: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(AWS region, name of a quota in `infra.catalogue.quotas`) → vCPUs that may run there at most."""

    def client(self, service: str, region: str | None = None) -> Any:
        """A boto3 client that gives up soon, by default in a region that nobody has to enable."""
        import botocore.config

        library: Any = botocore.config  # it has no annotations
        return self._session.client(
            service,
            region_name=region or _always_on(self.regions[0] if self.regions else ""),
            endpoint_url=self.env.get("AWS_ENDPOINT_URL"),
            config=library.Config(connect_timeout=4, read_timeout=10, retries={"max_attempts": 2}),
        )

    @cached_property
    def _session(self) -> Any:
        import boto3

        library: Any = boto3  # it has no annotations
        return library.Session(
            aws_access_key_id=self.env.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=self.env.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=self.env.get("AWS_SESSION_TOKEN"),
            profile_name=None if self.embedded else self.profile,
        )

    @cached_property
    def identity(self) -> Mapping[str, Any] | Exception:
        """Who AWS takes us for, asked once; or why it takes us for nobody."""
        try:
            said: Mapping[str, Any] = self.client("sts").get_caller_identity()
        except aws_errors() as problem:
            return problem
        return said


Check: TypeAlias = Callable[[Patient], Iterator[Finding]]


def _always_on(region: str) -> str:
    """A region of the same partition that is enabled in every account: others answer strangers with
    "invalid token", whatever is wrong."""
    if region.startswith("cn-"):
        return "cn-north-1"
    return "us-gov-west-1" if region.startswith("us-gov-") else "us-east-1"


def aws_errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    # The last is what a captive portal's page, or a proxy's, ends as.
    return BotoCoreError, ClientError, ResponseParserError
