"""EC2: the gateways of VPN connections."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.customer_gateways import CustomerGateway
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.models.vpn_gateway import VpnGatewayBackend
from moto.ec2.responses.customer_gateways import CustomerGateways
from moto.ec2.responses.route_tables import RouteTables

from infra.localaws.patching import around, method


def vpn_gateways() -> None:
    """DescribeVpnGateways after DetachVpnGateway: AWS drops a detached VPC, moto keeps it.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DetachVpnGateway.html
    """

    @around(VpnGatewayBackend)
    def detach_vpn_gateway(original: Any, self: Any, vpn_gateway_id: str, vpc_id: str) -> Any:
        detached = original(self, vpn_gateway_id, vpc_id)
        self.get_vpn_gateway(vpn_gateway_id).attachments.pop(vpc_id, None)
        return detached


def vgw_route_propagation() -> None:
    """EnableVgwRoutePropagation and DisableVgwRoutePropagation; DescribeRouteTables returns the result.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EnableVgwRoutePropagation.html
    """

    @around(RouteTable)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.propagating_vgws = []

    @method(RouteTables)
    def enable_vgw_route_propagation(self: Any) -> ActionResult:
        table, gateway = _asked(self)
        if {"GatewayId": gateway} not in table.propagating_vgws:
            table.propagating_vgws.append({"GatewayId": gateway})
        return EmptyResult()

    @method(RouteTables)
    def disable_vgw_route_propagation(self: Any) -> ActionResult:
        table, gateway = _asked(self)
        if {"GatewayId": gateway} in table.propagating_vgws:
            table.propagating_vgws.remove({"GatewayId": gateway})
        return EmptyResult()


def _asked(response: Any) -> tuple[Any, str]:
    """The route table and the gateway's id in a request; both exist."""
    table = response.ec2_backend.get_route_table(response._get_param("RouteTableId"))
    gateway: str = response._get_param("GatewayId")
    response.ec2_backend.get_vpn_gateway(gateway)
    return table, gateway


def customer_gateways() -> None:
    """CreateCustomerGateway stores the device's name and 32-bit AS numbers, and returns the existing gateway
    for an identical request: one with the same type, address, AS number and device name.

    moto drops the name, so that Terraform would replace the gateway, and creates another one each time.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateCustomerGateway.html
    """

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
