"""CompleteLifecycleAction lets a machine go that its group's hook holds; moto does not have the call.

https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CompleteLifecycleAction.html
"""

from __future__ import annotations

from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import EmptyResult

from infra.localaws.patching import method


def install() -> None:
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
