"""DescribeScalingActivities returns launches, including those that failed for lack of capacity, in pages;
groups retry.

moto either launches all instances or raises, and returns no activities. As in AWS, a group without capacity
stays below its desired size, reports why, and launches the instances once there is capacity: here, in the
next Describe.

https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_Activity.html
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError

from infra.localaws.patching import around, method


def install() -> None:
    @around(FakeAutoScalingGroup)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        self.activities = []
        original(self, *args, **kwargs)

    @around(FakeAutoScalingGroup)
    def replace_autoscaling_group_instances(
        original: Any, self: Any, count_needed: int, propagated_tags: dict[str, str]
    ) -> None:
        try:
            original(self, count_needed, propagated_tags)
        except EC2ClientError as problem:
            if problem.code != "InsufficientInstanceCapacity":
                raise
            self.activities.insert(0, _activity(self, f"{problem.message} Launching EC2 instance failed."))
        else:
            launched = self.instance_states[-count_needed:]
            self.activities[:0] = [_activity(self, "", state.instance.id) for state in launched]

    @around(AutoScalingBackend)
    def describe_auto_scaling_groups(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        groups = original(self, *args, **kwargs)
        for group in groups:
            short = group.activities and group.activities[0]["StatusCode"] == "Failed"
            if short and "Launch" not in group._suspended_processes:
                group.set_desired_capacity(group.desired_capacity)
        return groups

    @method(AutoScalingResponse)
    def describe_scaling_activities(self: Any) -> ActionResult:
        groups = self.autoscaling_backend.autoscaling_groups
        name = self._get_param("AutoScalingGroupName")
        found = [groups[name]] if name in groups else [] if name else list(groups.values())
        rows = sorted((row for group in found for row in group.activities), key=_order)
        start = int(self._get_param("NextToken") or 0)
        end = start + (self._get_int_param("MaxRecords") or 100)
        return ActionResult({
            "Activities": rows[start:end],
            "NextToken": str(end) if end < len(rows) else None,
        })  # fmt: skip


def _order(row: dict[str, Any]) -> tuple[bool, float]:
    """Activities in progress first, then the newest."""
    return row["StatusCode"] in ("Failed", "Successful", "Cancelled"), -row["StartTime"].timestamp()


def _activity(group: Any, failure: str, instance: str = "") -> dict[str, Any]:
    now = _now()
    return {
        "ActivityId": str(uuid4()),
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": group.arn,
        "Description": f"Launching a new EC2 instance{f': {instance}' if instance else ''}",
        "Cause": "an instance was started in response to a difference between desired and actual capacity",
        "StartTime": now,
        "EndTime": now,
        "StatusCode": "Failed" if failure else "Successful",
        "StatusMessage": failure or None,
        "Progress": 100,
        "Details": "{}",
    }


def _now() -> datetime:
    return datetime.now(UTC)
