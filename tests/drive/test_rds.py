"""Databases at RDS: lifted protection, authorities that are fetched and checked, snapshots."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kube.plane import planes
from stores import local_store
from web import Answer, pages

from infra.commands.cluster.tracking import bring_access
from infra.drive import localaws, rds
from infra.drive.aws import Aws, AwsError
from infra.drive.kubernetes import certificates, secrets
from infra.drive.localaws import Server
from infra.drive.rds import authorities_url, fetch_authorities
from infra.errors import DriveError
from infra.model.research import ManagedDatabase

ADDRESS = "module.tracking_database.aws_db_instance.this"


def test_protection_is_lifted_from_those_that_leave_alone(cloud: Server) -> None:
    aws = Aws(localaws.environment(cloud, "us-west-2"))
    client = aws.client("rds", "us-west-2")
    resources: list[dict[str, Any]] = []
    for name, module in (("lab-mlflow", "module.tracking_database"), ("other", "module.other")):
        made = client.create_db_instance(
            DBInstanceIdentifier=name,
            DBInstanceClass="db.t4g.small",
            Engine="postgres",
            AllocatedStorage=20,
            MasterUsername="mlflow",
            MasterUserPassword="not-a-real-one",
            DeletionProtection=True,
        )["DBInstance"]
        attributes = {"identifier": name, "arn": made["DBInstanceArn"]}
        resources.append(
            {
                "mode": "managed",
                "type": "aws_db_instance",
                "name": "this",
                "module": module,
                "instances": [{"attributes": attributes}],
            }
        )
    gone = {"identifier": "gone", "arn": "arn:aws:rds:us-west-2:123456789012:db:gone"}
    resources.append({**resources[0], "module": "module.gone", "instances": [{"attributes": gone}]})
    leaving = (ADDRESS, "module.gone.aws_db_instance.this", "module.x.aws_vpc.this")
    rds.lift_protection(aws, {"resources": resources}, ())
    with pytest.raises(ClientError, match="protected"):
        client.delete_db_instance(DBInstanceIdentifier="lab-mlflow", SkipFinalSnapshot=True)
    rds.lift_protection(aws, {"resources": resources}, leaving)
    client.delete_db_instance(DBInstanceIdentifier="lab-mlflow", SkipFinalSnapshot=True)
    with pytest.raises(ClientError, match="protected"):
        client.delete_db_instance(DBInstanceIdentifier="other", SkipFinalSnapshot=True)
    assert [each["DBInstanceIdentifier"] for each in client.describe_db_instances()["DBInstances"]] == [
        "other"
    ]


def test_snapshots_of_a_database_at_rds_are_taken_and_listed(cloud: Server) -> None:
    aws = Aws(localaws.environment(cloud, "us-west-2"))
    client = aws.client("rds", "us-west-2")
    for name in ("copied", "beside"):
        client.create_db_instance(
            DBInstanceIdentifier=name, DBInstanceClass="db.t4g.small", Engine="postgres",
            AllocatedStorage=20, MasterUsername="mlflow", MasterUserPassword="not-a-real-one",
        )  # fmt: skip
    client.create_db_snapshot(DBInstanceIdentifier="beside", DBSnapshotIdentifier="beside-1")
    at = datetime(2026, 11, 27, 3, tzinfo=UTC)
    made = rds.take_snapshot(aws, "copied", "us-west-2", at, 60, {"lab": "research"})
    assert (made.name, made.state, made.is_ours) == ("copied-20261127-030000", "available", True)
    found = rds.snapshots(aws, "copied", "us-west-2")
    assert [each.name for each in found if each.is_ours] == [made.name]
    (kept,) = client.describe_db_snapshots(DBSnapshotIdentifier=made.name)["DBSnapshots"]
    assert kept["TagList"] == [{"Key": "lab", "Value": "research"}]
    with pytest.raises(AwsError):
        rds.take_snapshot(aws, "none", "us-west-2", at, 60, {})


NOW = datetime.now(UTC)
AUTHORITY = certificates.authority("Amazon RDS us-west-2 Root CA", NOW)
OTHER = certificates.server(AUTHORITY, "db", ["db.example"], NOW, timedelta(days=1))


@contextmanager
def serving(text: str) -> Iterator[str]:
    """Where bundles are, as the address of one."""

    def page(path: str, _: object) -> Answer:
        return Answer(200 if path == "/us-west-2/us-west-2-bundle.pem" else 404, text.encode())

    with pages(page) as port:
        yield f"http://127.0.0.1:{port}/{{region}}/{{region}}-bundle.pem"


def test_a_regions_authorities_are_fetched() -> None:
    with serving(AUTHORITY.certificate) as bundle:
        assert fetch_authorities("us-west-2", bundle.format(region="us-west-2")) == AUTHORITY.certificate
        with pytest.raises(DriveError):
            fetch_authorities("eu-west-1", bundle.format(region="eu-west-1"))


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "truststore.pki.rds.amazonaws.com"),
        ("us-gov-east-1", "truststore.pki.us-gov-west-1.rds.amazonaws.com"),
        ("cn-northwest-1", "rds-truststore.s3.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_each_partition_has_its_own_server(region: str, host: str) -> None:
    assert authorities_url(region) == f"https://{host}/{region}/{region}-bundle.pem"


@pytest.mark.parametrize(
    "text", ["", "<html>Sign in to the network</html>", OTHER.certificate, AUTHORITY.certificate + "é"]
)
def test_what_is_not_authorities_is_refused(text: str) -> None:
    with serving(text) as bundle, pytest.raises(DriveError):
        fetch_authorities("us-west-2", bundle.format(region="us-west-2"))


def test_authorities_are_in_the_secret_and_stay_where_they_cannot_be_fetched(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    keys = secrets.made(store, NOW)
    managed = ManagedDatabase("x", "west", "us-west-2", (), "db.t4g.small", 20, 100, False, 14, {})
    with (
        serving(AUTHORITY.certificate) as bundle,
        serving("") as broken,
        planes(tmp_path, keys) as plane,
    ):
        api = plane.driven
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mlflow"}}
        api.create("/api/v1/namespaces", namespace)

        def had() -> set[str]:
            found = api.find("/api/v1/namespaces/mlflow/secrets/database") or {}
            values = {name: base64.b64decode(text) for name, text in found.get("data", {}).items()}
            assert values.get("authorities.pem", b"") in (b"", AUTHORITY.certificate.encode())
            return {*values}

        with pytest.raises(DriveError):
            bring_access(api, store, managed, partial(fetch_authorities, url=broken))
        assert had() == set()
        assert (
            bring_access(
                api, store, managed, partial(fetch_authorities, url=bundle.format(region="us-west-2"))
            )
            == "created"
        )
        assert had() == {"password", "authorities.pem"}
        assert bring_access(api, store, managed, partial(fetch_authorities, url=broken)).startswith(
            "unchanged; "
        )
        assert had() == {"password", "authorities.pem"}
        bring_access(api, store, None)
        assert had() == {"password"}
