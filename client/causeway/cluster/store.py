"""The store of code: an S3 bucket, opened by a token of the cluster, without keys of its own.

The namespace's service account ``work`` gets a token for AWS, which AWS STS exchanges for a session of the
namespace's role (AssumeRoleWithWebIdentity).
"""

from __future__ import annotations

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
        try:
            return has_object(self._s3, self.bucket, code_key(self._namespace, digest))
        except ClientError as error:
            raise _refused("look for code", error) from None
        except _UNANSWERED as error:
            raise UnreachableError(f"the store does not answer: {error}") from None

    def put_code(self, digest: str, archive: IO[bytes]) -> None:
        """Send an archive."""
        try:
            self._s3.put_object(Bucket=self.bucket, Key=code_key(self._namespace, digest), Body=archive)
        except ClientError as error:
            raise _refused("send code", error) from None
        except _UNANSWERED as error:
            raise UnreachableError(f"the store does not answer: {error}") from None

    def get_code(self, digest: str, target: Path) -> None:
        """Fetch an archive into a file."""
        try:
            found = self._s3.get_object(Bucket=self.bucket, Key=code_key(self._namespace, digest))
            with target.open("wb") as out:
                for chunk in found["Body"].iter_chunks(1 << 20):
                    out.write(chunk)
        except ClientError as error:
            raise _refused("fetch code", error) from None
        except _UNANSWERED as error:
            raise UnreachableError(f"the store does not answer: {error}") from None

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
        try:
            found = sts.assume_role_with_web_identity(
                RoleArn=role,
                RoleSessionName=self._cluster.person[:64],
                WebIdentityToken=self._token(store.audience),
            )["Credentials"]
        except ClientError as error:
            raise _refused("open the store", error) from None
        except _UNANSWERED as error:
            raise UnreachableError(f"AWS does not answer: {error}") from None
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


def _refused(doing: str, error: ClientError) -> CausewayError:
    said = error.response.get("Error", {})
    return CausewayError(f"AWS refuses to {doing}: {said.get('Message') or said.get('Code')}")
