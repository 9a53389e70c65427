"""StartInstanceRefresh, DescribeInstanceRefreshes and CancelInstanceRefresh.

moto lacks all of them. Here a refresh advances by one batch with each Describe: it replaces as many
instances as the minimum healthy percentage allows, at least one, except those that match or are protected.

https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_StartInstanceRefresh.html
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from infra.localaws.patching import around, method


def install() -> None:
    @around(FakeAutoScalingGroup)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        self.refreshes = []
        original(self, *args, **kwargs)

    @method(AutoScalingResponse)
    def start_instance_refresh(self: Any) -> ActionResult:
        group = _group(self)
        if _active(group):
            raise AutoscalingClientError(
                "InstanceRefreshInProgress",
                "An Instance Refresh is already in progress.",
            )
        preferences = self._get_param("Preferences", {})
        refresh = {
            "InstanceRefreshId": str(uuid4()),
            "AutoScalingGroupName": group.name,
            "Status": "Pending",
            "StartTime": datetime.now(UTC),
            "PercentageComplete": 0,
            "InstancesToUpdate": len(group.instance_states),
            "Preferences": preferences,
            "Strategy": "Rolling",
            "todo": [
                state.instance.id
                for state in group.instance_states
                if not (preferences.get("SkipMatching") and state.instance.image_id == group.image_id)
            ],
        }
        refresh["of"] = len(refresh["todo"])
        group.refreshes.insert(0, refresh)
        return ActionResult({"InstanceRefreshId": refresh["InstanceRefreshId"]})

    @method(AutoScalingResponse)
    def describe_instance_refreshes(self: Any) -> ActionResult:
        group = _group(self)
        asked = self._get_param("InstanceRefreshIds", [])
        for refresh in _active(group):
            _go_on(group, refresh)
        rows = [row for row in group.refreshes if not asked or row["InstanceRefreshId"] in asked]
        hidden = ("todo", "of")
        return ActionResult(
            {"InstanceRefreshes": [{key: row[key] for key in row if key not in hidden} for row in rows]}
        )

    @method(AutoScalingResponse)
    def cancel_instance_refresh(self: Any) -> ActionResult:
        found = _active(_group(self))
        if not found:
            raise AutoscalingClientError(
                "ActiveInstanceRefreshNotFound",
                "No in progress or pending Instance Refresh found for the group.",
            )
        found[0] |= {"Status": "Cancelled", "EndTime": datetime.now(UTC)}
        return ActionResult({"InstanceRefreshId": found[0]["InstanceRefreshId"]})


def _group(response: Any) -> Any:
    name = response._get_param("AutoScalingGroupName")
    group = response.autoscaling_backend.autoscaling_groups.get(name)
    if group is None:
        raise AutoscalingClientError("ValidationError", f"AutoScalingGroup name not found - null {name}")
    return group


def _active(group: Any) -> list[dict[str, Any]]:
    return [row for row in group.refreshes if row["Status"] in ("Pending", "InProgress")]


def _go_on(group: Any, refresh: dict[str, Any]) -> None:
    preferences = refresh["Preferences"]
    there = {state.instance.id: state for state in group.instance_states}
    todo = [each for each in refresh["todo"] if each in there]
    free = [
        each
        for each in todo
        if preferences.get("ScaleInProtectedInstances") == "Refresh"
        or not there[each].protected_from_scale_in
    ]
    share = 100 - int(preferences.get("MinHealthyPercentage", 90))
    batch = free[: max(1, len(there) * share // 100)]
    if batch:
        group.autoscaling_backend.ec2_backend.terminate_instances(batch)
        group.instance_states = [state for state in group.instance_states if state.instance.id not in batch]
        group.replace_autoscaling_group_instances(len(batch), group.get_propagated_tags())
    refresh["todo"] = [each for each in todo if each not in batch]
    left = len(refresh["todo"])
    refresh["Status"] = "InProgress"
    refresh["InstancesToUpdate"] = left
    refresh["PercentageComplete"] = (
        100 if not refresh["of"] else 100 * (refresh["of"] - left) // refresh["of"]
    )
    if not left or (not batch and preferences.get("ScaleInProtectedInstances") == "Ignore"):
        refresh |= {"Status": "Successful", "EndTime": datetime.now(UTC)}
    elif not batch:
        refresh["StatusReason"] = f"Waiting for instances that are protected from scale in: {left}"
