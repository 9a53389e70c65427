"""RDS databases: deletion protection, CA bundles, and snapshots."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException
from math import inf
from typing import Any, Final

from infra.drive.aws import Aws, aws_errors
from infra.errors import DriveError

_KIND: Final = "aws_db_instance"
_LIFTS: Final = ("rds:ModifyDBInstance",)


def lift_protection(aws: Aws, state: dict[str, Any], leaving: Collection[str]) -> None:
    """Disable the deletion protection of databases that leave a state, right before the apply that destroys
    them: the user has named them by then, and RDS refuses while ``DeletionProtection`` is on. Databases
    that no longer exist are skipped.

    https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_ModifyDBInstance.html
    """
    for address, values in _databases(state):
        if address not in leaving:
            continue
        name, region = str(values["identifier"]), str(values["arn"]).split(":")[3]
        client = aws.client("rds", region)
        with aws_errors(
            f"turn off the deletion protection of the database {name}", needs=_LIFTS, quoting=True
        ):
            try:
                client.modify_db_instance(
                    DBInstanceIdentifier=name, DeletionProtection=False, ApplyImmediately=True
                )
            except client.exceptions.DBInstanceNotFoundFault:
                continue


def _databases(state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Address and attributes of each database; our modules never have several under one name."""
    return [
        (".".join(filter(None, (each.get("module"), _KIND, each["name"]))), instance["attributes"])
        for each in state.get("resources") or ()
        if each.get("type") == _KIND and each.get("mode") == "managed"
        for instance in each["instances"]
    ]


_TRUST_STORES: Final = {
    "cn-": "rds-truststore.s3.cn-north-1.amazonaws.com.cn",
    "us-gov-": "truststore.pki.us-gov-west-1.rds.amazonaws.com",
    "": "truststore.pki.rds.amazonaws.com",
}
"""Prefix of a region's name → the host of its bundle; the first match is used."""
_SECONDS: Final = 20


def authorities_url(region: str) -> str:
    """The URL of the bundle with a region's CAs, which are not in trust stores.

    https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.SSL.html ("Certificate bundles by AWS
    Region"); for China, https://docs.amazonaws.cn/en_us/AmazonRDS/latest/UserGuide/UsingWithRDS.SSL.html
    """
    host = next(host for start, host in _TRUST_STORES.items() if region.startswith(start))
    return f"https://{host}/{region}/{region}-bundle.pem"


def fetch_authorities(region: str, url: str = "") -> str:
    """A region's CA certificates in PEM, from its bundle or ``url``. Raises DriveError.

    Amazon's web server is verified by this computer's CAs; the bundle itself is not signed.
    """
    from urllib.request import urlopen

    url = url or authorities_url(region)
    try:
        with urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - https
            text = answer.read().decode("ascii")
    except (OSError, HTTPException, ValueError) as problem:
        raise DriveError(f"{url} does not answer: {getattr(problem, 'reason', problem)}") from None
    return _checked(text, url)


def _checked(text: str, url: str) -> str:
    """The text, if it contains CA certificates and nothing else: with a proxy's page, MLflow could not
    connect to its database."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(text.encode())
        kinds = [each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for each in found]
    except (ValueError, x509.ExtensionNotFound):
        kinds = [False]
    if not all(kinds):
        raise DriveError(f"{url} answers with something else than certificates of authorities")
    return text


_EVERY: Final = 10.0
_LISTS: Final = ("rds:DescribeDBSnapshots",)
_MAKES: Final = (*_LISTS, "rds:CreateDBSnapshot", "rds:AddTagsToResource")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An RDS snapshot."""

    name: str
    taken: datetime | None
    """None while it is being created."""
    state: str
    """RDS's status: ``available``, ``creating``."""
    gib: int
    """The size of the disk in GiB."""
    is_ours: bool
    """Whether it is a manual snapshot, which stays until somebody deletes it. Nightly ones are deleted after
    the retention period in the spec."""


def snapshots(aws: Aws, database: str, region: str) -> list[Snapshot]:
    """The snapshots of a database, the newest first."""
    with aws_errors(f"list snapshots of the database {database}", needs=_LISTS, quoting=True):
        pages = aws.client("rds", region).get_paginator("describe_db_snapshots")
        found = [
            _snapshot(each)
            for page in pages.paginate(DBInstanceIdentifier=database)
            for each in page["DBSnapshots"]
        ]
    return sorted(found, key=lambda each: each.taken.timestamp() if each.taken else inf, reverse=True)


def take_snapshot(
    aws: Aws, database: str, region: str, now: datetime, seconds: float, tags: Mapping[str, str]
) -> Snapshot:
    """Create a snapshot, and wait for it. Raises DriveError if it takes longer than ``seconds``, or fails."""
    client = aws.client("rds", region)
    name = f"{database}-{now:%Y%m%d-%H%M%S}"
    with aws_errors(f"take a snapshot of the database {database}", needs=_MAKES, quoting=True):
        client.create_db_snapshot(
            DBInstanceIdentifier=database,
            DBSnapshotIdentifier=name,
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )
        until = time.monotonic() + seconds
        while True:
            (found,) = client.describe_db_snapshots(DBSnapshotIdentifier=name)["DBSnapshots"]
            if found["Status"] == "available":
                return _snapshot(found)
            if found["Status"] != "creating" or time.monotonic() > until:
                break
            time.sleep(_EVERY)
    raise DriveError(f"the snapshot {name} is {found['Status']} after {seconds:.0f} s: check it at RDS")


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        str(found["DBSnapshotIdentifier"]),
        found.get("SnapshotCreateTime"),
        str(found["Status"]),
        int(found.get("AllocatedStorage", 0)),
        found.get("SnapshotType") == "manual",
    )
