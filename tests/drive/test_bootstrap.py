"""The state's bucket, against moto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from msgspec.structs import replace

from infra.drive.aws import Aws
from infra.drive.bootstrap import state_bucket
from infra.errors import DriveError
from infra.load import load
from infra.model import Cluster
from infra.model.cluster import State
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

RESEARCH = Path(__file__).parents[2] / "environments" / "research.yaml"
ENV = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture
def s3() -> Iterator[Any]:
    library: Any = boto3
    with mock_aws():
        yield library.client(
            "s3", region_name="us-west-2", aws_access_key_id="test", aws_secret_access_key="test"
        )


@pytest.fixture
def cluster() -> Cluster:
    return resolve(load(RESEARCH).spec, Lock(), "research")[0]


def test_it_is_made_once_and_well(s3: Any, cluster: Cluster) -> None:
    bucket = cluster.state.bucket
    assert len(state_bucket(cluster, ENV)) == 6
    assert state_bucket(cluster, ENV) == ()
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    assert "aws:SecureTransport" in s3.get_bucket_policy(Bucket=bucket)["Policy"]
    # What somebody loosened is put right.
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    assert len(state_bucket(cluster, ENV)) == 1
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"


def test_a_local_state_needs_none(s3: Any, cluster: Cluster) -> None:
    assert state_bucket(replace(cluster, state=State("local", None, None, None)), ENV) == ()
    assert s3.list_buckets()["Buckets"] == []


def test_a_bucket_of_somebody_else_is_told(s3: Any, cluster: Cluster) -> None:
    def refused(**_: Any) -> None:
        raise ClientError({"ResponseMetadata": {"HTTPStatusCode": 403}}, "HeadBucket")

    with (
        patch.object(Aws, "client", return_value=SimpleNamespace(head_bucket=refused)),
        pytest.raises(DriveError, match="another account"),
    ):
        state_bucket(cluster, ENV)
