"""The store of code and results: an S3 bucket, accessed with a token of the cluster, without keys.

The namespace's service account ``work`` gets a token for AWS, which AWS STS exchanges for a session of the
namespace's role (AssumeRoleWithWebIdentity).
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from platformdirs import user_cache_path

from causeway.bucket import renew_object
from causeway.cluster.connection import Cluster
from causeway.code.archive import unpack
from causeway.errors import CausewayError, UnreachableError
from causeway.storage import Bucket

ACCOUNT = "work"
_SECONDS = 600
"""Lifetime of the token; the session lasts an hour."""
_KNOWN = timedelta(days=1)
"""How long this program assumes that an archive which it saw still exists."""


def code_key(namespace: str, digest: str) -> str:
    """The key of the archive with this digest."""
    return f"code/{namespace}/{digest}.tar.gz"


def packages_folder(namespace: str) -> str:
    """The folder of packages that were installed for the namespace's jobs. It is beside its code, with the
    same retention."""
    return f"code/{namespace}/python/"


def run_key(namespace: str, run: str) -> str:
    """The folder of a run, with ``logs/`` and ``results/`` (``causeway.keep``)."""
    return f"runs/{namespace}/{run}"


@dataclass(frozen=True)
class Kept:
    """A file that a run left in the store."""

    name: str
    """Relative to the folder that was listed."""
    key: str
    size: int
    """In bytes."""
    modified: float
    """Seconds since the epoch."""


class Store:
    """The folder of one namespace in the store."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    @property
    def bucket(self) -> str:
        return self._cluster.offer.store.bucket

    def keep_code(self, digest: str) -> bool:
        """Whether an archive exists. If so, the store keeps it for at least two thirds of its retention from
        now."""
        with asked("look for code"):
            key = code_key(self._namespace, digest)
            found = renew_object(self._s3, self.bucket, key, self._keep_days)
        if found:
            self._remember(digest)
        else:
            self._seen(digest).unlink(missing_ok=True)
        return found

    def knows_code(self, digest: str) -> bool:
        """Whether this program saw the archive there within the last day, so that the store need not be
        asked."""
        try:
            seen = self._seen(digest).stat().st_mtime
        except OSError:
            return False
        return time.time() - seen < min(_KNOWN, timedelta(days=self._keep_days) / 3).total_seconds()

    def _seen(self, digest: str) -> Path:
        return user_cache_path("causeway") / "seen" / self.bucket / self._namespace / digest

    def _remember(self, digest: str) -> None:
        """Note the archive in the cache. Losing it does no harm."""
        seen = self._seen(digest)
        with suppress(OSError):
            seen.parent.mkdir(parents=True, exist_ok=True)
            for other in seen.parent.iterdir():
                if time.time() - other.stat().st_mtime > _KNOWN.total_seconds():
                    other.unlink(missing_ok=True)
            seen.touch()

    @property
    def _keep_days(self) -> int:
        return self._cluster.offer.code_keep_days

    def put_code(self, digest: str, archive: IO[bytes]) -> None:
        """Upload an archive."""
        with asked("send code"):
            self._s3.put_object(Bucket=self.bucket, Key=code_key(self._namespace, digest), Body=archive)
        self._remember(digest)

    def get_code(self, digest: str, target: Path) -> None:
        """Download an archive into a file."""
        with asked("fetch code"), target.open("wb") as out:
            found = self._s3.get_object(Bucket=self.bucket, Key=code_key(self._namespace, digest))
            for chunk in found["Body"].iter_chunks(1 << 20):
                out.write(chunk)

    def unpack_code(self, digest: str, folder: Path) -> None:
        """Download an archive and unpack it into a folder that does not exist yet."""
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch, "code.tar.gz")
            self.get_code(digest, archive)
            with archive.open("rb") as packed:
                unpack(packed, digest, folder)

    def of_run(self, run: str, below: str = "") -> Bucket:
        """Return the storage of a run's folder, or of ``below/`` in it. It raises AWS's errors: wrap calls in
        ``asked``."""
        return Bucket(self._s3, self.bucket, f"{run_key(self._namespace, run)}/{below}")

    def kept(self, run: str, below: str) -> list[Kept]:
        """List the files of a run in ``logs/`` or ``results/``, by name. ``below`` ends with a slash."""
        prefix = f"{run_key(self._namespace, run)}/{below}"
        with asked("look for what the run left"):
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
        """Read a small file."""
        with asked("fetch what the run left"):
            data: bytes = self._s3.get_object(Bucket=self.bucket, Key=kept.key)["Body"].read()
            return data

    def download(self, kept: Kept, target: Path) -> None:
        """Download a file; it is written atomically."""
        with asked("fetch what the run left"):
            self._transfers.download(self.bucket, kept.key, str(target)).result()

    def upload(self, source: Path, run: str, name: str) -> None:
        """Upload a file to ``name`` in a run's folder."""
        with asked("send a file"):
            key = f"{run_key(self._namespace, run)}/{name}"
            self._transfers.upload(str(source), self.bucket, key).result()

    @property
    def runs(self) -> Bucket:
        """Return the storage of the namespace's runs."""
        return Bucket(self._s3, self.bucket, f"runs/{self._namespace}/")

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
        import botocore.session
        from botocore.config import Config

        config = Config(connect_timeout=5, read_timeout=60, retries={"max_attempts": 4, "mode": "standard"})
        session = botocore.session.Session()
        sts = session.create_client(
            "sts", region_name=store.region, config=config.merge(Config(signature_version=botocore.UNSIGNED))
        )
        token = self._token(store.audience)
        with asked("open the store"):
            found = sts.assume_role_with_web_identity(
                RoleArn=role, RoleSessionName=_session(self._cluster.person), WebIdentityToken=token
            )["Credentials"]
        return session.create_client(
            "s3",
            region_name=store.region,
            config=config,
            aws_access_key_id=found["AccessKeyId"],
            aws_secret_access_key=found["SecretAccessKey"],
            aws_session_token=found["SessionToken"],
        )

    def _token(self, audience: str) -> str:
        spec = {"audiences": [audience], "expirationSeconds": _SECONDS}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{ACCOUNT}/token"
        return str(self._cluster.call("POST", path, body)["status"]["token"])


def _session(person: str) -> str:
    """Make a session name that STS accepts (AWS STS API Reference, "AssumeRoleWithWebIdentity",
    RoleSessionName)."""
    return re.sub(r"[^\w+=,.@-]", "-", person)[:64]


@contextmanager
def asked(doing: str) -> Iterator[None]:
    """Turn AWS's errors into ours."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {})
        raise CausewayError(f"AWS refuses to {doing}: {said.get('Message') or said.get('Code')}") from None
    # The second one occurs if something else answers, such as a proxy.
    except (BotoCoreError, ResponseParserError) as error:
        raise UnreachableError(f"AWS does not answer: {error}") from None
