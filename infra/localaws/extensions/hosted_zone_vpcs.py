"""GetHostedZone answers the VPCs of a private zone.

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
    def get_hosted_zone(original: Any, self: Any) -> ActionResult:
        answer: Any = original(self)
        vpcs = answer.result["VPCs"]
        if vpcs is not None:
            answer.result["VPCs"] = [
                {"VPCId": vpc.get("vpc_id"), "VPCRegion": vpc.get("vpc_region")} for vpc in vpcs
            ]
        return ActionResult(answer.result)
