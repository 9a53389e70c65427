"""CreateCustomerGateway keeps the device's name and a large AS number, and answers an identical request with
the gateway that exists: one of the same type, address, AS number and device name.

moto forgets the name, so that Terraform would replace the gateway, and makes another one each time.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateCustomerGateway.html
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.models.customer_gateways import CustomerGateway
from moto.ec2.responses.customer_gateways import CustomerGateways

from infra.localaws.patching import around


def install() -> None:
    @around(CustomerGateway)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.bgp_asn_extended = None
        self.device_name = None
        self.certificate_arn = None

    @around(CustomerGateways)
    def create_customer_gateway(original: Any, self: Any) -> ActionResult:
        asked = (
            self._get_param("Type"),
            self._get_param("IpAddress") or self._get_param("PublicIp"),
            str(self._get_param("BgpAsn") or self._get_param("BgpAsnExtended") or ""),
            self._get_param("DeviceName") or "",
        )
        for gateway in self.ec2_backend.customer_gateways.values():
            if gateway.state == "available" and _identity(gateway) == asked:
                return ActionResult({"CustomerGateway": gateway})
        answer: Any = original(self)
        gateway = answer.result["CustomerGateway"]
        gateway.bgp_asn_extended = self._get_param("BgpAsnExtended")
        gateway.device_name = self._get_param("DeviceName")
        gateway.certificate_arn = self._get_param("CertificateArn")
        return ActionResult(answer.result)


def _identity(gateway: Any) -> tuple[str, str, str, str]:
    number = gateway.bgp_asn or gateway.bgp_asn_extended or ""
    return gateway.type, gateway.ip_address, str(number), gateway.device_name or ""
