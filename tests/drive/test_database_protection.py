"""The deletion protection of a database at the embedded AWS, which refuses as RDS does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from infra.drive import database_protection, localaws
from infra.drive.aws import Aws

ADDRESS = "module.tracking_database.aws_db_instance.this"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[localaws.Server]:
    made = localaws.start(tmp_path / "aws", "databases")
    yield made
    localaws.stop(made.folder)


def test_it_is_lifted_from_those_that_leave_alone(server: localaws.Server) -> None:
    rds = boto3.client(
        "rds",
        region_name="us-west-2",
        endpoint_url=server.address,
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    resources: list[dict[str, Any]] = []
    for name, module in (("lab-mlflow", "module.tracking_database"), ("other", "module.other")):
        made = rds.create_db_instance(
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
    aws = Aws(localaws.environment(server, "us-west-2"))
    leaving = (ADDRESS, "module.gone.aws_db_instance.this", "module.x.aws_vpc.this")
    database_protection.lift(aws, {"resources": resources}, ())
    with pytest.raises(ClientError, match="protected"):
        rds.delete_db_instance(DBInstanceIdentifier="lab-mlflow", SkipFinalSnapshot=True)
    database_protection.lift(aws, {"resources": resources}, leaving)
    rds.delete_db_instance(DBInstanceIdentifier="lab-mlflow", SkipFinalSnapshot=True)
    with pytest.raises(ClientError, match="protected"):
        rds.delete_db_instance(DBInstanceIdentifier="other", SkipFinalSnapshot=True)
    assert [each["DBInstanceIdentifier"] for each in rds.describe_db_instances()["DBInstances"]] == ["other"]
