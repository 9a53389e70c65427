"""PutLifecycleHook keeps what was asked for; moto invents a queue and a role, and forgets the rest.

https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
"""

from __future__ import annotations

from typing import Any

from moto.autoscaling.models import LifecycleHook
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from infra.localaws.patching import around


def install() -> None:
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
