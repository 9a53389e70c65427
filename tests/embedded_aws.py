"""The embedded AWS for a test, and boto3 clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.drive import localaws
from infra.drive.localaws import Server


@contextmanager
def embedded(folder: Path, environment: str = "test") -> Iterator[Server]:
    """An embedded AWS that keeps its state in ``folder``, until the block ends."""
    server = localaws.start(folder, environment)
    try:
        yield server
    finally:
        localaws.stop(folder)


def client(server: Server, service: str, region: str = "us-west-2", **credentials: str) -> Any:
    """A boto3 client; ``credentials`` as boto3 names them."""
    import boto3

    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", **credentials}
    return boto3.client(service, region_name=region, endpoint_url=server.address, **keys)


def bucket(server: Server, name: str, region: str = "us-west-2") -> Any:
    """An S3 client, after it made a bucket."""
    s3 = client(server, "s3", region)
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})
    return s3
