"""AWS's own protection of databases, which Terraform cannot lift in the run that destroys them.

Terraform destroys what the state has, and RDS refuses while ``DeletionProtection`` is on. So it is turned off
right before an apply whose plan destroys a database: a person has named it by then.

https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_ModifyDBInstance.html
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from infra.drive.aws import Aws, aws_errors

KIND: Final = "aws_db_instance"
_NEEDS: Final = ("rds:ModifyDBInstance",)


def lift(aws: Aws, state: dict[str, Any], leaving: Collection[str]) -> None:
    """Turn it off for the databases of a state that leave it. Those that are gone already are left alone."""
    for address, values in _databases(state):
        if address not in leaving:
            continue
        name, region = str(values["identifier"]), str(values["arn"]).split(":")[3]
        client = aws.client("rds", region)
        with aws_errors(
            f"turn off the deletion protection of the database {name}", needs=_NEEDS, quoting=True
        ):
            try:
                client.modify_db_instance(
                    DBInstanceIdentifier=name, DeletionProtection=False, ApplyImmediately=True
                )
            except client.exceptions.DBInstanceNotFoundFault:
                continue


def _databases(state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Address and attributes of each; none of our modules has several of them under one name."""
    return [
        (".".join(filter(None, (each.get("module"), KIND, each["name"]))), instance["attributes"])
        for each in state.get("resources") or ()
        if each.get("type") == KIND and each.get("mode") == "managed"
        for instance in each["instances"]
    ]
