"""The input and output of checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from infra.drive.aws import Aws, errors

State: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``fix`` is empty if there is no problem."""

    check: str
    state: State
    said: str
    fix: str = ""


@dataclass(frozen=True)
class Context:
    """The input of checks, as plain values. Checks of empty values are skipped."""

    options: str
    """The command-line options that select the environment: ``--env lab``."""
    build: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The environment that Terraform gets: credentials, AWS_ENDPOINT_URL."""
    builds: bool = True
    """Whether Terraform and Packer have anything to build."""
    uses_aws: bool = True
    embedded: bool = False
    """Whether the embedded AWS is used, where account limits do not apply."""
    account: str | None = None
    profile: str | None = None
    regions: tuple[str, ...] = ()
    """AWS regions; the first is the primary one."""
    bucket: str | None = None
    """The bucket of the state."""
    bucket_region: str | None = None
    vcpus: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(AWS region, name of a quota in `infra.catalogue.quotas`) → the maximum number of vCPUs of the spec."""

    def client(self, service: str, region: str | None = None) -> Any:
        """A boto3 client with short timeouts; by default in a region that is enabled in every account."""
        return self._aws.client(service, region or _always_on(self.regions[0] if self.regions else ""))

    @cached_property
    def _aws(self) -> Aws:
        return Aws(self.env, attempts=3, read_timeout=10)

    @cached_property
    def identity(self) -> Mapping[str, Any] | Exception:
        """The caller identity of the credentials, requested once; or the error."""
        try:
            said: Mapping[str, Any] = self.client("sts").get_caller_identity()
        except errors() as problem:
            return problem
        return said

    @property
    def signed_in(self) -> bool:
        """Whether the credentials are valid."""
        return self.uses_aws and not isinstance(self.identity, Exception)


Check: TypeAlias = Callable[[Context], Iterator[Finding]]


def _always_on(region: str) -> str:
    """A region of the same partition that is enabled in every account: disabled ones answer every request
    with "invalid token"."""
    if region.startswith("cn-"):
        return "cn-north-1"
    return "us-gov-west-1" if region.startswith("us-gov-") else "us-east-1"
