"""CreateHostedZone makes a private zone where a VPC is named; GetHostedZone answers its VPCs.

moto keeps them under names of its own, which its serializer does not find in the API's shape
(https://docs.aws.amazon.com/Route53/latest/APIReference/API_VPC.html).
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.route53.responses import Route53

from infra.localaws.patching import around


def install() -> None:
    @around(Route53)
    def create_hosted_zone(original: Any, self: Any) -> ActionResult:
        flag = self._get_bool_param

        def private(name: str, otherwise: Any = None) -> Any:
            named = name == "HostedZoneConfig.PrivateZone" and self._get_param("VPC.VPCId")
            return True if named else flag(name, otherwise)

        self._get_bool_param = private
        answer: ActionResult = original(self)
        return answer

    @around(Route53)
    def get_hosted_zone(original: Any, self: Any) -> ActionResult:
        answer: Any = original(self)
        vpcs = answer.result["VPCs"]
        if vpcs is not None:
            answer.result["VPCs"] = [
                {"VPCId": vpc.get("vpc_id"), "VPCRegion": vpc.get("vpc_region")} for vpc in vpcs
            ]
        return ActionResult(answer.result)
