"""Finds the AMIs in use: by instances, and by what Auto Scaling groups would launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.drive.aws import Aws, aws_errors, each_region

_NEEDS: Final = (
    "ec2:DescribeInstances", "ec2:DescribeLaunchTemplates", "ec2:DescribeLaunchTemplateVersions",
    "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeLaunchConfigurations",
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """One use of an AMI."""

    region: str
    ami: str
    kind: str
    """``instance``, ``launch template``, ``launch configuration`` or ``group`` (Auto Scaling)."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def uses(aws: Aws, regions: Iterable[str]) -> dict[str, tuple[Use, ...]]:
    """Region → all uses of AMIs there, by any resource: an image may be used by resources outside of
    Causeway."""

    def look(region: str) -> tuple[Use, ...]:
        with aws_errors(f"look who uses images in {region}", needs=_NEEDS, quoting=True):
            return tuple(sorted({*_instances(aws, region), *_launching(aws, region)}))

    return each_region(regions, look)


def _instances(aws: Aws, region: str) -> Iterator[Use]:
    pages = (
        aws.client("ec2", region)
        .get_paginator("describe_instances")
        .paginate(
            Filters=[
                {
                    "Name": "instance-state-name",
                    "Values": ["pending", "running", "stopping", "stopped", "shutting-down"],
                }
            ]
        )
    )
    for page in pages:
        for reservation in page["Reservations"]:
            for instance in reservation["Instances"]:
                yield Use(region, instance["ImageId"], "instance", instance["InstanceId"])


def _launching(aws: Aws, region: str) -> Iterator[Use]:
    ec2, scaling = aws.client("ec2", region), aws.client("autoscaling", region)
    configurations = {}
    for page in scaling.get_paginator("describe_launch_configurations").paginate():
        for row in page["LaunchConfigurations"]:
            configurations[row["LaunchConfigurationName"]] = row["ImageId"]
            yield Use(region, row["ImageId"], "launch configuration", row["LaunchConfigurationName"])
    wanted: dict[str, set[str]] = {}
    for page in ec2.get_paginator("describe_launch_templates").paginate():
        for row in page["LaunchTemplates"]:
            newest = {str(row["LatestVersionNumber"]), str(row["DefaultVersionNumber"])}
            wanted.setdefault(row["LaunchTemplateId"], set()).update(newest)
    groups = []
    for page in scaling.get_paginator("describe_auto_scaling_groups").paginate():
        for row in page["AutoScalingGroups"]:
            groups.append(row)
            for template in templates(row):
                if template["Version"].isdigit() and template["LaunchTemplateId"] in wanted:
                    wanted[template["LaunchTemplateId"]].add(template["Version"])
    images: dict[tuple[str, str], str] = {}
    for template_id, versions in sorted(wanted.items()):
        for row in ec2.describe_launch_template_versions(
            LaunchTemplateId=template_id, Versions=sorted(versions)
        )["LaunchTemplateVersions"]:
            if ami := row["LaunchTemplateData"].get("ImageId", ""):
                images[template_id, str(row["VersionNumber"])] = ami
                yield Use(
                    region,
                    ami,
                    "launch template",
                    f"{row['LaunchTemplateName']} version {row['VersionNumber']}",
                )
    for row in groups:
        name = row["AutoScalingGroupName"]
        if found := configurations.get(row.get("LaunchConfigurationName", "")):
            yield Use(region, found, "group", name)
        for template in templates(row):
            if found := images.get((template["LaunchTemplateId"], template["Version"])):
                yield Use(region, found, "group", name)


def templates(group: Mapping[str, Any]) -> list[dict[str, str]]:
    """The launch templates of a group of DescribeAutoScalingGroups: id and version as configured."""
    mixed = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    rows = [
        group.get("LaunchTemplate"),
        mixed.get("LaunchTemplateSpecification"),
        *(override.get("LaunchTemplateSpecification") for override in mixed.get("Overrides", [])),
    ]
    return [
        {"LaunchTemplateId": row["LaunchTemplateId"], "Version": str(row.get("Version", "$Default"))}
        for row in rows
        if row and row.get("LaunchTemplateId")
    ]
