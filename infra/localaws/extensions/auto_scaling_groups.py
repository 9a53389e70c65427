"""Auto Scaling groups."""

from __future__ import annotations

import copy
import math
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, InstanceState, LifecycleHook
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from infra.localaws.patching import around, method

_NUMBERS: Final = {
    "DefaultCooldown": "default_cooldown",
    "DefaultInstanceWarmup": "default_instance_warmup",
    "MaxInstanceLifetime": "max_instance_lifetime",
}
_TEXTS: Final = {
    "DesiredCapacityType": "desired_capacity_type",
    "PlacementGroup": "placement_group",
    "Context": "context",
    "ServiceLinkedRoleARN": "service_linked_role_arn",
}


def _as_asked(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    """A policy as a call accepts it: responses name the launch template by id and name, but a call may have
    only one."""
    asked = copy.deepcopy(policy)
    if asked:
        asked["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
    return asked


def auto_scaling_groups() -> None:
    """CreateAutoScalingGroup, UpdateAutoScalingGroup and DeleteAutoScalingGroup with all properties.

    moto ignores warm-up, lifetime and capacity type; launches too few instances for a mix of On-Demand and
    Spot, and none into a placement group; removes the mixed instances policy in an update without one; keeps
    excess instances when their protection is removed; and keeps hooks and protected instances of deleted
    groups.

    https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_AutoScalingGroup.html
    """

    @around(FakeAutoScalingGroup)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        self.default_instance_warmup = None
        self.max_instance_lifetime = None
        self.desired_capacity_type = None
        self.context = None
        self.capacity_reservation_specification = {"CapacityReservationPreference": "default"}
        original(self, *args, **kwargs)

    @around(FakeAutoScalingGroup)
    def update(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        launch = ("launch_config_name", "launch_template", "mixed_instances_policy")
        if not any(kwargs.get(name) for name in launch):
            kwargs["mixed_instances_policy"] = _as_asked(self.mixed_instances_policy)
        else:  # another launch method replaces the current one
            self.ec2_launch_template = None
            self.launch_config = None
            self.launch_configuration_name = None
        original(self, *args, **kwargs)

    @method(FakeAutoScalingGroup)
    def set_desired_capacity(self: Any, new_capacity: int | None) -> None:
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity
        weight = int((_first_override(self) or {}).get("WeightedCapacity") or 1)
        missing = math.ceil((self.desired_capacity or 0) / weight) - len(self.active_instances())
        if missing > 0:
            self.replace_autoscaling_group_instances(missing, self.get_propagated_tags())
        elif missing < 0:
            free = [state for state in self.instance_states if not state.protected_from_scale_in]
            going = free[:-missing]
            if going:
                self.ec2_backend.terminate_instances([state.instance.id for state in going])
                self.instance_states = [state for state in self.instance_states if state not in going]
        if self.name in self.autoscaling_backend.autoscaling_groups:
            self.autoscaling_backend.update_attached_elbs(self.name)
            self.autoscaling_backend.update_attached_target_groups(self.name)

    @around(FakeAutoScalingGroup)
    def replace_autoscaling_group_instances(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        before = len(self.instance_states)
        original(self, *args, **kwargs)
        for state in self.instance_states[before:]:
            state.instance._placement.group_name = self.placement_group or ""

    setattr(FakeAutoScalingGroup, "instance_type", property(_instance_type))  # noqa: B010, mypy
    setattr(InstanceState, "weighted_capacity", property(_weighted_capacity))  # noqa: B010, mypy

    @around(AutoScalingResponse)
    def create_auto_scaling_group(original: Any, self: Any) -> EmptyResult:
        answer: EmptyResult = original(self)
        _more(self)
        return answer

    @around(AutoScalingResponse)
    def update_auto_scaling_group(original: Any, self: Any) -> EmptyResult:
        answer: EmptyResult = original(self)
        group = _more(self)
        if (policies := self._get_param("TerminationPolicies", None)) is not None:
            group.termination_policies = policies
        if (rebalance := self._get_bool_param("CapacityRebalance", None)) is not None:
            group.capacity_rebalance = rebalance
        return answer

    @around(AutoScalingBackend)
    def set_instance_protection(
        original: Any, self: Any, group_name: str, instance_ids: list[str], protected_from_scale_in: bool
    ) -> None:
        # Reducing a group's size waits for this, so Terraform empties a group before it deletes it.
        original(self, group_name, instance_ids, protected_from_scale_in)
        if not protected_from_scale_in:
            group = self.autoscaling_groups[group_name]
            group.set_desired_capacity(group.desired_capacity)

    @around(AutoScalingBackend)
    def delete_auto_scaling_group(original: Any, self: Any, group_name: str) -> None:
        group = self.autoscaling_groups.get(group_name)
        for state in group.instance_states if group else ():
            state.protected_from_scale_in = False
        original(self, group_name)
        for key, hook in list(self.lifecycle_hooks.items()):
            if hook.auto_scaling_group_name == group_name:
                del self.lifecycle_hooks[key]


def _first_override(group: Any) -> dict[str, Any] | None:
    """The instance type that a mixed group launches: always the first, as if it had capacity."""
    policy = group.mixed_instances_policy or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides") or [None]
    first: dict[str, Any] | None = overrides[0]
    return first


def _instance_type(group: Any) -> str:
    if (first := _first_override(group)) and first.get("InstanceType"):
        return str(first["InstanceType"])
    if group.ec2_launch_template:
        return str(group.ec2_launch_template.get_version(group.launch_template_version).instance_type)
    return str(group.launch_config.instance_type)


def _weighted_capacity(state: Any) -> str | None:
    first = _first_override(state.auto_scaling_group)
    return first.get("WeightedCapacity") if first else None


def _more(response: Any) -> Any:
    """Copy the parameters of a request that moto ignores."""
    group = response.autoscaling_backend.autoscaling_groups[response._get_param("AutoScalingGroupName")]
    for theirs, ours in _NUMBERS.items():
        value = response._get_int_param(theirs)
        if value is not None:
            # -1 removes the warm-up, 0 the lifetime
            setattr(
                group, ours, None if value < 0 or (ours == "max_instance_lifetime" and not value) else value
            )
    for theirs, ours in _TEXTS.items():
        text = response._get_param(theirs)
        if text is not None:
            setattr(group, ours, text or None)
    return group


def group_terminations() -> None:
    """TerminateInstanceInAutoScalingGroup refuses what AWS refuses, and reduces the group by the instance's
    weight.

    moto reduces any group, even below its minimum, and fails for an unknown instance.

    https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_TerminateInstanceInAutoScalingGroup.html
    """

    @around(AutoScalingBackend)
    def terminate_instance(original: Any, self: Any, instance_id: str, should_decrement: bool) -> Any:
        for group in self.autoscaling_groups.values():
            for state in group.instance_states:
                if state.instance.id != instance_id:
                    continue
                if not should_decrement:
                    return original(self, instance_id, False)
                weight = int(state.weighted_capacity or 1)
                if group.desired_capacity - weight < group.min_size:
                    raise ValidationError(
                        f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance "
                        "without replacement will violate group's min size constraint. Either set "
                        "shouldDecrementDesiredCapacity flag to false or lower group's min size."
                    )
                group.desired_capacity -= weight - 1
                return original(self, instance_id, True)
        raise ValidationError(
            f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        )


def group_notifications() -> None:
    """PutNotificationConfiguration, with its Describe and Delete calls. No notifications are sent.

    https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutNotificationConfiguration.html
    """

    @around(FakeAutoScalingGroup)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.notified = {}

    @method(AutoScalingResponse)
    def put_notification_configuration(self: Any) -> ActionResult:
        group = _group(self, self._get_param("AutoScalingGroupName"))
        group.notified[self._get_param("TopicARN")] = list(self._get_param("NotificationTypes"))
        return EmptyResult()

    @method(AutoScalingResponse)
    def describe_notification_configurations(self: Any) -> ActionResult:
        wanted = self._get_param("AutoScalingGroupNames") or list(self.autoscaling_backend.autoscaling_groups)
        rows = [
            {"AutoScalingGroupName": name, "TopicARN": topic, "NotificationType": kind}
            for name in wanted
            if name in self.autoscaling_backend.autoscaling_groups
            for topic, kinds in _group(self, name).notified.items()
            for kind in kinds
        ]
        return ActionResult({"NotificationConfigurations": rows})

    @method(AutoScalingResponse)
    def delete_notification_configuration(self: Any) -> ActionResult:
        group = _group(self, self._get_param("AutoScalingGroupName"))
        group.notified.pop(self._get_param("TopicARN"), None)
        return EmptyResult()


def _group(response: Any, name: str) -> Any:
    return response.autoscaling_backend.autoscaling_groups[name]


def lifecycle_hooks() -> None:
    """PutLifecycleHook stores its parameters; moto invents a queue and a role, and ignores the rest.

    https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
    """

    @around(LifecycleHook)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.role_arn = None
        self.notification_target_arn = None
        self.notification_metadata = None

    @around(AutoScalingResponse)
    def put_lifecycle_hook(original: Any, self: Any) -> ActionResult:
        answer: ActionResult = original(self)
        group, name = self._get_param("AutoScalingGroupName"), self._get_param("LifecycleHookName")
        (hook,) = self.autoscaling_backend.describe_lifecycle_hooks(group, [name])
        hook.role_arn = self._get_param("RoleARN")
        hook.notification_target_arn = self._get_param("NotificationTargetARN")
        hook.notification_metadata = self._get_param("NotificationMetadata")
        return answer


def lifecycle_actions() -> None:
    """CompleteLifecycleAction continues with an instance that a lifecycle hook holds; moto lacks the call.

    https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CompleteLifecycleAction.html
    """

    @method(AutoScalingResponse)
    def complete_lifecycle_action(self: Any) -> EmptyResult:
        backend, instance = self.autoscaling_backend, self._get_param("InstanceId")
        group = backend.autoscaling_groups[self._get_param("AutoScalingGroupName")]
        held = [state for state in group.instance_states if state.instance.id == instance]
        hooks = backend.describe_lifecycle_hooks(group.name, [self._get_param("LifecycleHookName")])
        if not hooks or not held or held[0].lifecycle_state != "Terminating:Wait":
            raise ValidationError(f"No active Lifecycle Action found with instance ID {instance}")
        group.instance_states = [state for state in group.instance_states if state not in held]
        backend.ec2_backend.terminate_instances([instance])
        return EmptyResult()
