"""The store of code and of what runs leave: an S3 bucket, opened by a token of the cluster, without keys.

The namespace's service account ``work`` gets a token for AWS, which AWS STS exchanges for a session of the
namespace's role (AssumeRoleWithWebIdentity).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from causeway.bucket import has_object
from causeway.cluster.connection import Cluster
from causeway.errors import CausewayError, UnreachableError

ACCOUNT = "work"
_SECONDS = 600
"""Of the token; the session lasts an hour."""
_CONFIG = Config(connect_timeout=5, read_timeout=60, retries={"max_attempts": 4, "mode": "standard"})


def code_key(namespace: str, digest: str) -> str:
    """Where the archive of that name is."""
    return f"code/{namespace}/{digest}.tar.gz"


_UNANSWERED = (BotoCoreError, ResponseParserError)
"""What botocore raises where no store answers: the second where something else does, as a proxy."""


def packages_folder(namespace: str) -> str:
    """Where packages that were installed for the namespace's jobs are: beside its code, and kept as long."""
    return f"code/{namespace}/python/"


def run_key(namespace: str, run: str) -> str:
    """The folder of a run: ``logs/`` and ``results/`` (``causeway.keep``)."""
    return f"runs/{namespace}/{run}"


@dataclass(frozen=True)
class Kept:
    """A file that a run left."""

    name: str
    """Below the folder that was looked at."""
    key: str
    size: int
    """Bytes."""
    modified: float
    """Seconds since the epoch."""


class Store:
    """What one namespace has in the store."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    @property
    def bucket(self) -> str:
        return self._cluster.offer.store.bucket

    def has_code(self, digest: str) -> bool:
        """Whether an archive is there already."""
        with _asked("look for code"):
            return has_object(self._s3, self.bucket, code_key(self._namespace, digest))

    def put_code(self, digest: str, archive: IO[bytes]) -> None:
        """Send an archive."""
        with _asked("send code"):
            self._s3.put_object(Bucket=self.bucket, Key=code_key(self._namespace, digest), Body=archive)

    def get_code(self, digest: str, target: Path) -> None:
        """Fetch an archive into a file."""
        with _asked("fetch code"), target.open("wb") as out:
            found = self._s3.get_object(Bucket=self.bucket, Key=code_key(self._namespace, digest))
            for chunk in found["Body"].iter_chunks(1 << 20):
                out.write(chunk)

    def kept(self, run: str, below: str) -> list[Kept]:
        """What there is of a run below ``logs/`` or ``results/``, by name. ``below`` ends with a slash."""
        prefix = f"{run_key(self._namespace, run)}/{below}"
        with _asked("look for what the run left"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            return [
                Kept(
                    each["Key"].removeprefix(prefix),
                    each["Key"],
                    each["Size"],
                    each["LastModified"].timestamp(),
                )
                for page in pages
                for each in page.get("Contents", ())
            ]

    def read(self, kept: Kept) -> bytes:
        """The bytes of something small."""
        with _asked("fetch what the run left"):
            data: bytes = self._s3.get_object(Bucket=self.bucket, Key=kept.key)["Body"].read()
            return data

    def download(self, kept: Kept, target: Path) -> None:
        """Fetch a file; nobody sees it half-written."""
        with _asked("fetch what the run left"):
            self._transfers.download(self.bucket, kept.key, str(target)).result()

    def upload(self, source: Path, run: str, name: str) -> None:
        """Send a file to ``name`` below a run's folder."""
        with _asked("send a file"):
            key = f"{run_key(self._namespace, run)}/{name}"
            self._transfers.upload(str(source), self.bucket, key).result()

    @cached_property
    def _transfers(self) -> Any:
        from s3transfer.manager import TransferManager

        return TransferManager(self._s3)

    @cached_property
    def _s3(self) -> Any:
        store = self._cluster.offer.store
        role = store.roles.get(self._namespace)
        if role is None:
            raise CausewayError(
                f"{self._namespace} has no folder in the store; the cluster's engineers have to run "
                "`invoke apply` and `invoke cluster.up`"
            )
        session = botocore.session.Session()
        sts = session.create_client(
            "sts", region_name=store.region, config=_CONFIG.merge(Config(signature_version=botocore.UNSIGNED))
        )
        token = self._token(store.audience)
        with _asked("open the store"):
            found = sts.assume_role_with_web_identity(
                RoleArn=role, RoleSessionName=self._cluster.person[:64], WebIdentityToken=token
            )["Credentials"]
        return session.create_client(
            "s3",
            region_name=store.region,
            config=_CONFIG,
            aws_access_key_id=found["AccessKeyId"],
            aws_secret_access_key=found["SecretAccessKey"],
            aws_session_token=found["SessionToken"],
        )

    def _token(self, audience: str) -> str:
        spec = {"audiences": [audience], "expirationSeconds": _SECONDS}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{ACCOUNT}/token"
        return str(self._cluster.call("POST", path, body)["status"]["token"])


@contextmanager
def _asked(doing: str) -> Iterator[None]:
    """AWS's errors as ours."""
    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {})
        raise CausewayError(f"AWS refuses to {doing}: {said.get('Message') or said.get('Code')}") from None
    except _UNANSWERED as error:
        raise UnreachableError(f"AWS does not answer: {error}") from None
