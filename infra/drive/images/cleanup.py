"""Deletes what a bake left, found by its tag, its names, and dependencies of these.

Packer cleans up after itself, except for copies in other regions if one of them failed, and everything if it
was killed. Resources that no longer exist are not an error, so cleaning up can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from infra.drive.aws import Aws, AwsError, aws_errors, each_region
from infra.drive.images.amis import BAKE, ami
from infra.drive.images.journal import Entry

_PATIENCE: Final = 300.0
"""Seconds to wait for an instance to terminate; only then can its resources be deleted."""
_BEAT: Final = 2.0

_NEEDS: Final = (
    "ec2:Describe*", "ec2:TerminateInstances", "ec2:DeleteVolume", "ec2:DeleteSecurityGroup",
    "ec2:DeleteKeyPair", "ec2:DeleteLaunchTemplate", "ec2:DeregisterImage", "ec2:DeleteSnapshot",
)  # fmt: skip

_LIVING: Final = ["pending", "running", "shutting-down", "stopping", "stopped"]


@dataclass(frozen=True, slots=True, order=True)
class Thing:
    """A resource in EC2."""

    region: str
    kind: str
    """``instance``, ``volume``, ``security group``, ``AMI`` …"""
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id} in {self.region}"


def sweep(
    aws: Aws, entry: Entry, *, images: bool = True, sleep: Callable[[float], None] = time.sleep
) -> list[Thing]:
    """Delete what a bake left in every region; returns what was deleted. ``images``: AMIs and snapshots too.

    Raises ``RegionsError`` or ``AwsError`` if something cannot be deleted.
    """
    gone = list(_machines(aws, entry, sleep))
    if images:
        for things in each_region(
            (entry.region, *entry.regions), lambda at: _images(aws, entry, at)
        ).values():
            gone += things
    return gone


def _machines(aws: Aws, entry: Entry, sleep: Callable[[float], None]) -> Iterator[Thing]:
    region = entry.region
    ec2 = aws.client("ec2", region)
    ours = [{"Name": f"tag:{BAKE}", "Values": [entry.id]}]
    with aws_errors(f"clean up after the bake {entry.id} in {region}", needs=_NEEDS, quoting=True):
        groups = [row["GroupId"] for row in ec2.describe_security_groups(Filters=ours)["SecurityGroups"]]
        instances = _ids(ec2, ours)
        if groups:
            # A Spot Instance of Packer 1.6 has no tags in its first second.
            instances |= _ids(ec2, [{"Name": "instance.group-id", "Values": groups}])
        volumes = {row["VolumeId"] for row in ec2.describe_volumes(Filters=ours)["Volumes"]}
        if instances:
            ec2.terminate_instances(InstanceIds=sorted(instances))
            yield from (Thing(region, "instance", each) for each in sorted(instances))
            _wait_until_gone(ec2, instances, sleep)
        for volume in sorted(volumes):
            with _gone_is_fine("InvalidVolume.NotFound"):
                ec2.delete_volume(VolumeId=volume)
                yield Thing(region, "volume", volume)
        for row in ec2.describe_launch_templates(Filters=ours)["LaunchTemplates"]:
            ec2.delete_launch_template(LaunchTemplateId=row["LaunchTemplateId"])
            yield Thing(region, "launch template", row["LaunchTemplateId"])
        for group in groups:
            _delete_group(ec2, group, sleep)
            yield Thing(region, "security group", group)
        for row in ec2.describe_key_pairs(Filters=ours)["KeyPairs"]:
            ec2.delete_key_pair(KeyName=row["KeyName"])
            yield Thing(region, "key pair", row["KeyName"])


def _images(aws: Aws, entry: Entry, region: str) -> list[Thing]:
    """AMIs by tag and by name, as Packer adds tags last; their snapshots, and snapshots that only name the
    AMI."""
    ec2 = aws.client("ec2", region)
    gone: list[Thing] = []
    with aws_errors(f"clean up after the bake {entry.id} in {region}", needs=_NEEDS, quoting=True):
        rows: dict[str, Any] = {}
        for name, value in ((f"tag:{BAKE}", entry.id), ("name", entry.name)):
            for row in ec2.describe_images(Owners=["self"], Filters=[{"Name": name, "Values": [value]}])[
                "Images"
            ]:
                rows[row["ImageId"]] = row
        snapshots = {
            row["SnapshotId"]
            for row in ec2.describe_snapshots(
                OwnerIds=["self"], Filters=[{"Name": f"tag:{BAKE}", "Values": [entry.id]}]
            )["Snapshots"]
        }
        for image, row in sorted(rows.items()):
            snapshots |= set(ami(row, region).snapshots)
            snapshots |= {
                each["SnapshotId"]
                for each in ec2.describe_snapshots(
                    OwnerIds=["self"], Filters=[{"Name": "description", "Values": [f"*{image}*"]}]
                )["Snapshots"]
            }
            with _gone_is_fine("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"):
                ec2.deregister_image(ImageId=image)
                gone.append(Thing(region, "AMI", image))
        for snapshot in sorted(snapshots):
            with _gone_is_fine("InvalidSnapshot.NotFound"):
                ec2.delete_snapshot(SnapshotId=snapshot)
                gone.append(Thing(region, "snapshot", snapshot))
    return gone


def _ids(ec2: Any, filters: list[dict[str, Any]]) -> set[str]:
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[*filters, {"Name": "instance-state-name", "Values": _LIVING}]
    )
    return {
        instance["InstanceId"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    }


def _wait_until_gone(ec2: Any, instances: set[str], sleep: Callable[[float], None]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while _ids(ec2, [{"Name": "instance-id", "Values": sorted(instances)}]):
        if time.monotonic() > deadline:
            raise AwsError(f"{', '.join(sorted(instances))}: still present after deletion", "Timeout")
        sleep(_BEAT)


def _delete_group(ec2: Any, group: str, sleep: Callable[[float], None]) -> None:
    """Delete a security group. It remains in use for a moment after its last instance has terminated."""
    from botocore.exceptions import ClientError

    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            with _gone_is_fine("InvalidGroup.NotFound", "InvalidGroupId.NotFound"):
                ec2.delete_security_group(GroupId=group)
        except ClientError as problem:
            if problem.response["Error"]["Code"] != "DependencyViolation" or time.monotonic() > deadline:
                raise
            sleep(_BEAT)
        else:
            return


@contextmanager
def _gone_is_fine(*codes: str) -> Iterator[None]:
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as problem:
        if problem.response["Error"]["Code"] not in codes:
            raise
