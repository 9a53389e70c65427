"""Our AMIs in every region, found by their tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from infra.drive.aws import Aws, aws_errors, each_region
from infra.errors import DriveError

INPUTS: Final = "causeway:inputs"
"""The tag with the hash of an image's inputs, on AMIs and snapshots."""
BAKE: Final = "causeway:bake"
"""The tag with a bake's id, on every resource it creates."""
SOURCE: Final = "causeway:source"
"""The tag with the AMI that an image was built from."""


@dataclass(frozen=True, slots=True)
class Ami:
    """An AMI in a region."""

    id: str
    region: str
    name: str
    created: datetime
    state: str
    tags: Mapping[str, str]
    snapshots: tuple[str, ...]

    @property
    def image(self) -> str:
        """The image's name in the spec; empty for an AMI that we did not bake."""
        return self.tags.get("image", "")


def ours(aws: Aws, regions: Iterable[str], **tags: str) -> dict[str, tuple[Ami, ...]]:
    """Region → AMIs with all of these tags, newest first; the keywords ``inputs`` and ``bake`` stand for
    ``causeway:…``."""
    names = {"inputs": INPUTS, "bake": BAKE}
    filters = [{"Name": f"tag:{names.get(key, key)}", "Values": [value]} for key, value in tags.items()]

    def look(region: str) -> tuple[Ami, ...]:
        with aws_errors(f"look for images in {region}", needs=("ec2:DescribeImages",), quoting=True):
            answer = aws.client("ec2", region).describe_images(Owners=["self"], Filters=filters)
        return tuple(
            sorted((ami(row, region) for row in answer["Images"]), key=lambda one: one.created, reverse=True)
        )

    return each_region(regions, look)


def newest_source(aws: Aws, region: str, owner: str, name: str, architecture: str) -> Ami:
    """The AMI that Packer's ``source_ami_filter`` selects. Raises ``DriveError`` if there is none."""
    filters = {
        "name": name,
        "architecture": architecture,
        "root-device-type": "ebs",
        "virtualization-type": "hvm",
        "state": "available",
    }
    with aws_errors(f"look for the source image in {region}", needs=("ec2:DescribeImages",), quoting=True):
        rows = aws.client("ec2", region).describe_images(
            Owners=[owner], Filters=[{"Name": key, "Values": [value]} for key, value in filters.items()]
        )["Images"]
    if not rows:
        raise DriveError(
            f"no image {name} ({architecture}) of account {owner} is published in {region}; look at the "
            "image's `ubuntu` and `source` in the spec"
        )
    return max((ami(row, region) for row in rows), key=lambda one: one.created)


def everywhere(found: Mapping[str, tuple[Ami, ...]]) -> dict[str, Ami] | None:
    """Region → the newest available AMI; None unless every region has one."""
    usable = {region: [one for one in amis if one.state == "available"] for region, amis in found.items()}
    return {region: amis[0] for region, amis in usable.items()} if all(usable.values()) else None


def ami(row: Mapping[str, Any], region: str) -> Ami:
    """An AMI, from a row of DescribeImages."""
    return Ami(
        id=row["ImageId"],
        region=region,
        name=row.get("Name", ""),
        created=datetime.fromisoformat(str(row.get("CreationDate") or "1970-01-01T00:00:00.000Z")),
        state=row.get("State", ""),
        tags={tag["Key"]: tag["Value"] for tag in row.get("Tags", [])},
        snapshots=tuple(
            disk["Ebs"]["SnapshotId"]
            for disk in row.get("BlockDeviceMappings", [])
            if disk.get("Ebs", {}).get("SnapshotId")
        ),
    )
