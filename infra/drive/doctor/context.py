"""What is examined, and what comes of it."""

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
    """What one check found. ``fix`` is what to do; empty when all is well."""

    check: str
    state: State
    said: str
    fix: str = ""


@dataclass(frozen=True)
class Context:
    """What is examined, as plain values. Empty ones leave their checks out."""

    options: str
    """What names the environment on a command line: ``--env lab``."""
    build: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """As Terraform would see it: credentials, AWS_ENDPOINT_URL."""
    builds: bool = True
    """Whether there is anything for Terraform and Packer to build."""
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
        return self._aws.client(service, region or _always_on(self.regions[0] if self.regions else ""))

    @cached_property
    def _aws(self) -> Aws:
        return Aws(self.env, attempts=3, read_timeout=10)

    @cached_property
    def identity(self) -> Mapping[str, Any] | Exception:
        """Who AWS takes us for, asked once; or why it takes us for nobody."""
        try:
            said: Mapping[str, Any] = self.client("sts").get_caller_identity()
        except errors() as problem:
            return problem
        return said

    @property
    def signed_in(self) -> bool:
        """Whether there is an account to ask."""
        return self.uses_aws and not isinstance(self.identity, Exception)


Check: TypeAlias = Callable[[Context], Iterator[Finding]]


def _always_on(region: str) -> str:
    """A region of the same partition that is enabled in every account: others answer strangers with
    "invalid token", whatever is wrong."""
    if region.startswith("cn-"):
        return "cn-north-1"
    return "us-gov-west-1" if region.startswith("us-gov-") else "us-east-1"
