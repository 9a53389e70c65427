"""Rolls a pool to its current launch template: an instance refresh in each of its Auto Scaling groups.

EC2 Auto Scaling replaces a few instances at a time; the group's lifecycle hook drains each before its
termination. https://docs.aws.amazon.com/autoscaling/ec2/userguide/asg-instance-refresh.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from infra.drive.aws import Aws, AwsError, RegionsError, aws_errors, each_region
from infra.drive.images.usage import templates
from infra.errors import DriveError, UsageError

Protected: TypeAlias = Literal["wait", "ignore", "refresh"]
"""What happens to instances protected from scale-in, as all in our groups are: ``wait`` up to an hour until
the protection is removed; ``ignore`` them; or ``refresh``, which drains and replaces them like any other."""

_ENDED: Final = {"Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful"}
_BEAT: Final = 10.0

_NEEDS: Final = (
    "autoscaling:DescribeAutoScalingGroups", "autoscaling:StartInstanceRefresh",
    "autoscaling:DescribeInstanceRefreshes", "autoscaling:CancelInstanceRefresh",
    "ec2:DescribeLaunchTemplateVersions",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """An Auto Scaling group to roll."""

    region: str
    """The AWS region."""
    name: str
    image: str | None
    """The locked AMI; None if no image is baked, and any AMI is accepted."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """Speed and exceptions of a refresh. Percentages are of the desired capacity."""

    min_healthy: int = 90
    max_healthy: int = 110
    protected: Protected = "refresh"
    checkpoints: tuple[int, ...] = ()
    """Percentages after which to pause."""
    checkpoint_delay: int = 600
    """Duration of a pause in seconds."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_healthy <= 100 <= self.max_healthy <= 200:
            raise UsageError("--min-healthy is a percentage from 0 to 100, --max-healthy one from 100 to 200")
        if self.max_healthy - self.min_healthy > 100:
            raise UsageError("--max-healthy may be at most 100 above --min-healthy")
        if self.min_healthy == self.max_healthy == 100:
            raise UsageError(
                "with both at 100 nothing could be replaced: raise --max-healthy or lower --min-healthy"
            )
        if list(self.checkpoints) != sorted({each for each in self.checkpoints if 0 < each <= 100}):
            raise UsageError("checkpoints are percentages from 1 to 100, in ascending order")

    def as_aws(self) -> dict[str, Any]:
        """The ``RefreshPreferences``. Instances that match already are skipped, so a roll can be repeated."""
        return {
            "MinHealthyPercentage": self.min_healthy,
            "MaxHealthyPercentage": self.max_healthy,
            "SkipMatching": True,
            "ScaleInProtectedInstances": self.protected.capitalize(),
            "StandbyInstances": "Ignore",
            **(
                {
                    "CheckpointPercentages": [*self.checkpoints, *([] if 100 in self.checkpoints else [100])],
                    "CheckpointDelay": self.checkpoint_delay,
                }
                if self.checkpoints
                else {}
            ),
        }


@dataclass(frozen=True, slots=True)
class Refresh:
    """The progress of an instance refresh."""

    group: Group
    id: str
    status: str
    """AWS's status: ``Pending``, ``InProgress``, ``Successful``, ``Failed``, ``Cancelled`` …"""
    percent: int
    left: int
    """Instances still to be replaced."""
    reason: str

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


def start(aws: Aws, groups: Sequence[Group], preferences: Preferences, apply: str) -> list[Refresh]:
    """Start a refresh in each group, or find the one in progress.

    Before anything is started, each group must exist and launch the locked image; otherwise raises
    ``DriveError``, naming the command ``apply``. Raises ``RegionsError`` if AWS refuses.
    """
    _each(groups, lambda group: _require_image(aws, group, apply))

    def begin(group: Group) -> Refresh:
        try:
            with aws_errors(
                f"start an instance refresh of {group.name} in {group.region}", needs=_NEEDS, quoting=True
            ):
                started = aws.client("autoscaling", group.region).start_instance_refresh(
                    AutoScalingGroupName=group.name, Strategy="Rolling", Preferences=preferences.as_aws()
                )["InstanceRefreshId"]
        except AwsError as problem:
            if problem.code != "InstanceRefreshInProgress":
                raise
            return look(aws, group)
        return look(aws, group, started)

    return _each(groups, begin)


def look(aws: Aws, group: Group, refresh: str = "") -> Refresh:
    """A refresh of a group, by id; by default the newest."""
    with aws_errors(
        f"look at the instance refresh of {group.name} in {group.region}", needs=_NEEDS, quoting=True
    ):
        rows = aws.client("autoscaling", group.region).describe_instance_refreshes(
            AutoScalingGroupName=group.name,
            **({"InstanceRefreshIds": [refresh]} if refresh else {"MaxRecords": 1}),
        )["InstanceRefreshes"]
    if not rows:
        raise DriveError(f"{group.name} in {group.region} knows of no instance refresh")
    row = rows[0]
    return Refresh(
        group,
        row["InstanceRefreshId"],
        row["Status"],
        int(row.get("PercentageComplete") or 0),
        int(row.get("InstancesToUpdate") or 0),
        row.get("StatusReason") or "",
    )


def follow(
    aws: Aws,
    refreshes: Sequence[Refresh],
    heard: Callable[[Refresh], None],
    *,
    beat: float = _BEAT,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Refresh]:
    """Poll until all have ended; ``heard`` is called with each change. A Ctrl-C only ends the polling."""
    now = list(refreshes)
    for one in now:
        heard(one)
    while not all(one.ended for one in now):
        sleep(beat)
        fresh = [one if one.ended else look(aws, one.group, one.id) for one in now]
        for before, after in zip(now, fresh, strict=True):
            if before != after:
                heard(after)
        now = fresh
    return now


def cancel(aws: Aws, groups: Sequence[Group]) -> list[Group]:
    """Cancel refreshes in progress; returns the groups that had one. Replaced instances stay."""

    def stop(group: Group) -> bool:
        try:
            with aws_errors(
                f"cancel the instance refresh of {group.name} in {group.region}", needs=_NEEDS, quoting=True
            ):
                aws.client("autoscaling", group.region).cancel_instance_refresh(
                    AutoScalingGroupName=group.name
                )
        except AwsError as problem:
            if problem.code != "ActiveInstanceRefreshNotFound":
                raise
            return False
        return True

    return [group for group, had in zip(groups, _each(groups, stop), strict=True) if had]


def _each(groups: Sequence[Group], work: Callable[[Group], Any]) -> list[Any]:
    """Call ``work`` for all groups, in parallel by region; a pool has at most one group per region."""
    of: Mapping[str, Group] = {f"{group.region}/{group.name}": group for group in groups}
    try:
        return list(each_region(of, lambda key: work(of[key])).values())
    except RegionsError as problem:
        raise DriveError("\n".join(map(str, problem.failed.values()))) from None


def _require_image(aws: Aws, group: Group, apply: str) -> None:
    with aws_errors(f"look at {group.name} in {group.region}", needs=_NEEDS, quoting=True):
        rows = aws.client("autoscaling", group.region).describe_auto_scaling_groups(
            AutoScalingGroupNames=[group.name]
        )["AutoScalingGroups"]
        launches = _image(aws, group.region, rows[0]) if rows else ""
    if not rows:
        raise DriveError(f"group {group.name} does not exist in {group.region} yet; run: {apply}")
    if group.image is not None and launches != group.image:
        raise DriveError(
            f"{group.name} in {group.region} launches {launches or 'an unknown image'}, and "
            f"{group.image} is locked; run `{apply}` first, then roll"
        )


def _image(aws: Aws, region: str, group: Mapping[str, Any]) -> str:
    """The AMI that a group launches."""
    for template in templates(group)[:1]:
        rows = aws.client("ec2", region).describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"], Versions=[template["Version"]]
        )["LaunchTemplateVersions"]
        return str(rows[0]["LaunchTemplateData"].get("ImageId", "")) if rows else ""
    if name := group.get("LaunchConfigurationName"):
        rows = aws.client("autoscaling", region).describe_launch_configurations(
            LaunchConfigurationNames=[name]
        )["LaunchConfigurations"]
        return str(rows[0]["ImageId"]) if rows else ""
    return ""
