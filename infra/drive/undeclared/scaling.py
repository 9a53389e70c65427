"""Undeclared scaling policies, schedules, hooks and notifications of our Auto Scaling groups."""

from __future__ import annotations

from collections.abc import Iterator

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Undeclared, on, pages


def policies(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Scaling policies: beside the autoscaler, one would terminate busy instances."""
    client = aws.client("autoscaling", region)
    for name, holder in declared.by("name", "aws_autoscaling_group", region).items():
        for page in pages(client, "describe_policies", AutoScalingGroupName=name):
            for policy in page["ScalingPolicies"]:
                kind = policy.get("PolicyType", "SimpleScaling")
                yield on(
                    holder, "scaling policy", policy["PolicyName"], f"{policy['PolicyName']} ({kind})",
                    "autoscaling", "delete_policy",
                    AutoScalingGroupName=name, PolicyName=policy["PolicyName"],
                )  # fmt: skip


def scheduled_actions(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Scheduled actions, which change the size at a given time."""
    client = aws.client("autoscaling", region)
    for name, holder in declared.by("name", "aws_autoscaling_group", region).items():
        for page in pages(client, "describe_scheduled_actions", AutoScalingGroupName=name):
            for action in page["ScheduledUpdateGroupActions"]:
                sizes = ", ".join(
                    f"{size} {action[key]}"
                    for key, size in (("MinSize", "min"), ("MaxSize", "max"), ("DesiredCapacity", "desired"))
                    if action.get(key) is not None
                )
                when = action.get("Recurrence") or action.get("StartTime") or action.get("Time") or ""
                said = ", ".join(filter(None, (sizes, f"at {when}" if when else "")))
                label = action["ScheduledActionName"]
                yield on(
                    holder, "scheduled action", label, f"{label} ({said})",
                    "autoscaling", "delete_scheduled_action",
                    AutoScalingGroupName=name, ScheduledActionName=label,
                )  # fmt: skip


def hooks(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Lifecycle hooks, which delay launches or terminations."""
    client = aws.client("autoscaling", region)
    ours = declared.values("aws_autoscaling_lifecycle_hook", "autoscaling_group_name", "name")
    for name, holder in declared.by("name", "aws_autoscaling_group", region).items():
        try:
            hooks = client.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        except client.exceptions.ClientError as problem:
            if problem.response["Error"]["Code"] != "ValidationError":
                raise
            continue  # the group was deleted, which Terraform's plan reports
        for hook in hooks:
            label = hook["LifecycleHookName"]
            if (name, label) not in ours:
                what = f"{label} on {hook['LifecycleTransition'].rpartition(':')[2]}"
                yield on(
                    holder, "lifecycle hook", label, what,
                    "autoscaling", "delete_lifecycle_hook",
                    AutoScalingGroupName=name, LifecycleHookName=label,
                )  # fmt: skip


def notifications(aws: Aws, region: str, declared: Declared) -> Iterator[Undeclared]:
    """Topics that are notified of a group's events."""
    client = aws.client("autoscaling", region)
    groups = declared.by("name", "aws_autoscaling_group", region)
    if not groups:
        return
    told: dict[tuple[str, str], list[str]] = {}
    for page in pages(client, "describe_notification_configurations", AutoScalingGroupNames=sorted(groups)):
        for row in page["NotificationConfigurations"]:
            key = row["AutoScalingGroupName"], row["TopicARN"]
            told.setdefault(key, []).append(row["NotificationType"].rpartition(":")[2])
    for (name, topic), kinds in sorted(told.items()):
        yield on(
            groups[name], "notification", topic, f"{', '.join(sorted(kinds))} to {topic}",
            "autoscaling", "delete_notification_configuration", AutoScalingGroupName=name, TopicARN=topic,
        )  # fmt: skip
