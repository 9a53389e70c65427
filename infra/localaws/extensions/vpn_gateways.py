"""DescribeVpnGateways after DetachVpnGateway: AWS forgets a detached VPC, moto keeps it for ever.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DetachVpnGateway.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models.vpn_gateway import VpnGatewayBackend

from infra.localaws.patching import around


def install() -> None:
    @around(VpnGatewayBackend)
    def detach_vpn_gateway(original: Any, self: Any, vpn_gateway_id: str, vpc_id: str) -> Any:
        detached = original(self, vpn_gateway_id, vpc_id)
        self.get_vpn_gateway(vpn_gateway_id).attachments.pop(vpc_id, None)
        return detached
