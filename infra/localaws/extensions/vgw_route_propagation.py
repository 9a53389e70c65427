"""EnableVgwRoutePropagation and DisableVgwRoutePropagation; DescribeRouteTables reads them back.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EnableVgwRoutePropagation.html
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.responses.route_tables import RouteTables

from infra.localaws.patching import around, method


def install() -> None:
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
    """The route table and the gateway's id of a request, both known to exist."""
    table = response.ec2_backend.get_route_table(response._get_param("RouteTableId"))
    gateway: str = response._get_param("GatewayId")
    response.ec2_backend.get_vpn_gateway(gateway)
    return table, gateway
