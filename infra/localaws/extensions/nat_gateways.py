"""DeleteNatGateway gives its network interface back; moto keeps it, and its address stays associated.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteNatGateway.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models import EC2Backend

from infra.localaws.patching import around


def install() -> None:
    @around(EC2Backend)
    def delete_nat_gateway(original: Any, self: Any, nat_gateway_id: str) -> Any:
        gateway = original(self, nat_gateway_id)
        for address in self.addresses:
            if address.eni is gateway._eni:
                address.eni = None
                address.association_id = None
        self.enis.pop(gateway._eni.id, None)
        return gateway
