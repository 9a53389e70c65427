"""MonitorInstances and UnmonitorInstances, which moto does not know.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_MonitorInstances.html
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.responses.monitoring import Monitoring

from infra.localaws.patching import method


def install() -> None:
    @method(Monitoring)
    def monitor_instances(self: Any) -> ActionResult:
        return _switch(self, "enabled")

    @method(Monitoring)
    def unmonitor_instances(self: Any) -> ActionResult:
        return _switch(self, "disabled")


def _switch(response: Any, state: str) -> ActionResult:
    rows = []
    for name in response._get_param("InstanceIds", []):
        response.ec2_backend.get_instance(name).monitoring_state = state
        rows.append({"InstanceId": name, "Monitoring": {"State": state}})
    return ActionResult({"InstanceMonitorings": rows})
