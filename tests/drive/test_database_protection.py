"""The deletion protection of a database at the embedded AWS, which refuses as RDS does."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.drive import database_protection, localaws
from infra.drive.aws import Aws
from infra.drive.localaws import Server

ADDRESS = "module.tracking_database.aws_db_instance.this"


def test_it_is_lifted_from_those_that_leave_alone(cloud: Server) -> None:
    aws = Aws(localaws.environment(cloud, "us-west-2"))
    rds = aws.client("rds", "us-west-2")
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
    leaving = (ADDRESS, "module.gone.aws_db_instance.this", "module.x.aws_vpc.this")
    database_protection.lift(aws, {"resources": resources}, ())
    with pytest.raises(ClientError, match="protected"):
        rds.delete_db_instance(DBInstanceIdentifier="lab-mlflow", SkipFinalSnapshot=True)
    database_protection.lift(aws, {"resources": resources}, leaving)
    rds.delete_db_instance(DBInstanceIdentifier="lab-mlflow", SkipFinalSnapshot=True)
    with pytest.raises(ClientError, match="protected"):
        rds.delete_db_instance(DBInstanceIdentifier="other", SkipFinalSnapshot=True)
    assert [each["DBInstanceIdentifier"] for each in rds.describe_db_instances()["DBInstances"]] == ["other"]
