"""Objects in S3, by the master's instance role.

Copies of etcd are ``<prefix><cluster>/<time>-<master>.db``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kubernetes_node.settings import UTC, Bucket, Failed, Settings

_NAME = re.compile(r"(\d{8}T\d{6}Z)-[a-z0-9.-]+\.db")
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Copy:
    """A copy in the bucket."""

    name: str
    taken: datetime
    bytes: int


class Shelf:
    """The copies of one cluster."""

    def __init__(self, settings: Settings) -> None:
        import boto3

        if settings.bucket is None:
            raise Failed("no bucket is named: copies of etcd are kept nowhere")
        self._s3 = boto3.client("s3", region_name=settings.bucket.region)
        self.bucket = settings.bucket.name
        self.folder = f"{settings.bucket.prefix}{settings.cluster}/"

    def put(self, file: Path, name: str, about: Mapping[str, str]) -> None:
        """A copy, with its digest and what else is known of it."""
        extra = {"ServerSideEncryption": "AES256", "Metadata": {**about, "sha256": digest(file)}}
        self._do(self._s3.upload_file, str(file), self.bucket, f"{self.folder}{name}", ExtraArgs=extra)

    def get(self, name: str, file: Path) -> None:
        """A copy as it was put; Failed where it is another."""
        key = f"{self.folder}{name}"
        about = self._do(self._s3.head_object, Bucket=self.bucket, Key=key)
        self._do(self._s3.download_file, self.bucket, key, str(file))
        if digest(file) != about["Metadata"].get("sha256"):
            raise Failed(f"s3://{self.bucket}/{key} is not what was put there: its digest differs")

    def copies(self) -> list[Copy]:
        """All of them, the newest first."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.folder)
        rows = self._do(lambda: [row for page in pages for row in page.get("Contents", ())])
        found = []
        for row in rows:
            name = row["Key"].removeprefix(self.folder)
            match = _NAME.fullmatch(name)
            if match:
                taken = datetime.strptime(match[1], _TIME).replace(tzinfo=UTC)
                found.append(Copy(name, taken, row["Size"]))
        return sorted(found, key=lambda each: each.name, reverse=True)

    def _do(self, call: Any, *arguments: Any, **named: Any) -> Any:
        return _done(f"s3://{self.bucket}/{self.folder}", call, *arguments, **named)


def write(where: Bucket, key: str, body: bytes) -> None:
    """An object."""
    import boto3

    s3 = boto3.client("s3", region_name=where.region)
    _done(f"s3://{where.name}/{key}", s3.put_object, Bucket=where.name, Key=key, Body=body)


def _done(where: str, call: Any, *arguments: Any, **named: Any) -> Any:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call(*arguments, **named)
    except (Boto3Error, BotoCoreError, ClientError) as problem:
        raise Failed(f"{where}: {problem}") from problem


def name_of(master: str, taken: datetime) -> str:
    """``20261121T174604Z-master-1.db``: names sort by time."""
    return f"{taken.strftime(_TIME)}-{master}.db"


def digest(file: Path) -> str:
    """SHA-256 of a file that may be larger than memory."""
    found = hashlib.sha256()
    with file.open("rb") as read:
        while block := read.read(1 << 20):
            found.update(block)
    return found.hexdigest()
