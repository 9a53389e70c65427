"""CreateCustomerGateway keeps the device's name; moto forgets it, and Terraform would replace the gateway.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CustomerGateway.html
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
        self.device_name = None
        self.certificate_arn = None

    @around(CustomerGateways)
    def create_customer_gateway(original: Any, self: Any) -> ActionResult:
        answer: Any = original(self)
        gateway = answer.result["CustomerGateway"]
        gateway.device_name = self._get_param("DeviceName")
        gateway.certificate_arn = self._get_param("CertificateArn")
        return ActionResult(answer.result)
