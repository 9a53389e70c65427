"""PutNotificationConfiguration, with its Describe and Delete: topics that hear of a group. Nothing is sent.

https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutNotificationConfiguration.html
"""

from __future__ import annotations

from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from infra.localaws.patching import around, method


def install() -> None:
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
