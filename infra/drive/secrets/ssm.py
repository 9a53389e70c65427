"""The shared store: AWS Systems Manager Parameter Store, a SecureString per secret.

Limits (AWS General Reference, "Systems Manager endpoints and quotas"): a value has up to 4 KiB in the
standard tier, at no cost, and 8 KiB in the advanced one; an account holds 10,000 standard parameters per
region. ``Intelligent-Tiering`` uses the advanced tier when needed and never moves a parameter back. Calls
are throttled to 40 reads and 3 writes per second for the whole account; botocore retries them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from infra.drive.aws import Aws, AwsError, aws_errors
from infra.drive.secrets.store import SecretsError, check_name, check_value

_AT_ONCE: Final = 10
"""Maximum names in one GetParameters call."""

ACTIONS: Final = (
    "ssm:GetParameters",
    "ssm:GetParametersByPath",
    "ssm:PutParameter",
    "ssm:DeleteParameter",
)
"""The actions that an IAM policy must allow on ``arn:aws:ssm:<region>:<account>:parameter<prefix>`` and
``…<prefix>/*``. The account's default key for Parameter Store, aws/ssm, needs no permission."""

_ADVICE: Final = {
    "ParameterLimitExceeded": (
        "your account's limit of parameters in the region is reached; ask AWS for more"
    ),
    "ValidationException": (
        "secrets.prefix must start with '/', but not with /aws or /ssm, and hold only a-z A-Z 0-9 . _ - /"
    ),
}


class SsmStore:
    """Secrets of one environment under ``prefix`` (``/causeway/research``) in one region."""

    def __init__(self, prefix: str, region: str, environment: str, env: Mapping[str, str]) -> None:
        """``env`` is the environment that Terraform gets: credentials, profile, AWS_ENDPOINT_URL."""
        self._prefix = prefix.rstrip("/")
        self._region = region
        self._environment = environment
        self._aws = Aws(env, attempts=10, read_timeout=20)

    def __str__(self) -> str:
        return f"Parameter Store {self._prefix} in {self._region or 'the default region'}"

    def get(self, name: str) -> str | None:
        return self.read([name]).get(name)

    def read(self, names: Iterable[str]) -> Mapping[str, str]:
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            check_name(name)
        found: dict[str, str] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            paths = [self._path(name) for name in wanted[start : start + _AT_ONCE]]
            with self._told("read"):
                answer = self._client.get_parameters(Names=paths, WithDecryption=True)
            found |= {self._name(row["Name"]): row["Value"] for row in answer["Parameters"]}
        return found

    def add(self, values: Mapping[str, str]) -> frozenset[str]:
        return frozenset(name for name, value in values.items() if self._put(name, value, over=False))

    def put(self, name: str, value: str) -> None:
        self._put(name, value, over=True)

    def names(self, prefix: str = "") -> tuple[str, ...]:
        with self._told("list"):
            pages = self._client.get_paginator("get_parameters_by_path").paginate(
                Path=self._prefix, Recursive=True, WithDecryption=False
            )
            found = [self._name(row["Name"]) for page in pages for row in page["Parameters"]]
        return tuple(sorted(name for name in found if name.startswith(prefix)))

    def delete(self, name: str) -> bool:
        check_name(name)
        with self._told("delete"):
            try:
                self._client.delete_parameter(Name=self._path(name))
            except self._client.exceptions.ParameterNotFound:
                return False
        return True

    def _put(self, name: str, value: str, *, over: bool) -> bool:
        check_name(name)
        check_value(name, value)
        with self._told("write"):
            try:
                self._client.put_parameter(
                    Name=self._path(name),
                    Description=f"Causeway, environment {self._environment}",
                    Value=value,
                    Type="SecureString",
                    Overwrite=over,
                    Tier="Intelligent-Tiering",
                )
            except self._client.exceptions.ParameterAlreadyExists:
                return False
        return True

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _name(self, path: str) -> str:
        return path.removeprefix(f"{self._prefix}/")

    @property
    def _client(self) -> Any:
        return self._aws.client("ssm", self._region)

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        try:
            with aws_errors(f"{doing} secrets", needs=ACTIONS, advice=_ADVICE):
                yield
        except AwsError as problem:
            raise SecretsError(f"{self}: {problem}") from None
