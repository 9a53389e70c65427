"""TerminateInstanceInAutoScalingGroup refuses what AWS refuses, and takes a machine's weight off its group.

moto makes any group smaller, below its least size too, and does not expect a machine that it does not know.

https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_TerminateInstanceInAutoScalingGroup.html
"""

from __future__ import annotations

from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend

from infra.localaws.patching import around


def install() -> None:
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
