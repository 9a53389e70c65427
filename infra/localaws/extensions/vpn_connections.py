"""CreateVpnConnection keeps its options and tunnel options, ModifyVpnTunnelOptions changes them, and tunnels
have telemetry; ModifyVpnConnection; CreateVpnConnectionRoute and its deletion; GetVpnTunnelReplacementStatus
and ReplaceVpnTunnel. Maintenance of a tunnel is pending while its connection has the tag ``maintenance
<outside address>``, which stands for AWS's announcement.

AWS gives each tunnel an outside address, takes the second address of a tunnel's /30 for the customer's side
and the first for its own, and invents the inside block and the key where none was asked for.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVpnConnection.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVpnConnection.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetVpnTunnelReplacementStatus.html
https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html
"""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Network
from typing import Any, Final
from xml.etree import ElementTree

from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import InvalidParameterValueError, InvalidTransitGatewayID
from moto.ec2.models.vpn_connections import VPNConnection
from moto.ec2.responses.vpn_connections import VPNConnections
from moto.moto_api._internal import mock_random

from infra.localaws.extensions.transit_gateways import detach_vpn
from infra.localaws.patching import around, method

_RENAMED: Final = {
    "DPDTimeoutSeconds": "DpdTimeoutSeconds",
    "DPDTimeoutAction": "DpdTimeoutAction",
    "IKEVersions": "IkeVersions",
}
"""Requests and responses spell these differently."""

_RESERVED: Final = {*(f"169.254.{n}.0/30" for n in range(6)), "169.254.169.252/30"}
"""Inside blocks that AWS refuses."""


def install() -> None:
    @around(VPNConnection)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.routes = []
        self.vgw_telemetry = []
        self.category = "VPN"
        self.gateway_association_state = "associated"

    @around(VPNConnection)
    def get_filter_value(original: Any, self: Any, filter_name: str, method_name: str | None = None) -> Any:
        if filter_name == "vpn-connection-id":
            return self.id
        if filter_name == "route.destination-cidr-block":
            return [route["DestinationCidrBlock"] for route in self.routes]
        if filter_name in ("vpn-gateway-id", "transit-gateway-id"):
            return getattr(self, filter_name.replace("-", "_")) or ""
        return original(self, filter_name, method_name)

    @around(VPNConnections)
    def create_vpn_connection(original: Any, self: Any) -> ActionResult:
        answer: ActionResult = original(self)
        connection = answer.result["VpnConnection"]  # type: ignore[index]
        asked = self._get_param("Options", {})
        connection.options = {
            "EnableAcceleration": asked.get("EnableAcceleration", False),
            "StaticRoutesOnly": asked.get("StaticRoutesOnly", False),
            "LocalIpv4NetworkCidr": asked.get("LocalIpv4NetworkCidr", "0.0.0.0/0"),
            "RemoteIpv4NetworkCidr": asked.get("RemoteIpv4NetworkCidr", "0.0.0.0/0"),
            "OutsideIpAddressType": asked.get("OutsideIpAddressType", "PublicIpv4"),
            "TunnelInsideIpVersion": asked.get("TunnelInsideIpVersion", "ipv4"),
            "TunnelOptions": _tunnels(asked.get("TunnelOptions", [])),
        }
        connection.vgw_telemetry = [_telemetry(tunnel) for tunnel in connection.options["TunnelOptions"]]
        return answer

    @method(VPNConnections)
    def modify_vpn_tunnel_options(self: Any) -> ActionResult:
        connection, tunnel = _tunnel(self)
        tunnel.update(_answered(self._get_param("TunnelOptions", {})))
        return ActionResult({"VpnConnection": connection})

    @method(VPNConnections)
    def get_vpn_tunnel_replacement_status(self: Any) -> ActionResult:
        connection, tunnel = _tunnel(self)
        pending = _announced(connection, tunnel)
        details: dict[str, Any] = {"PendingMaintenance": "available" if pending else "none"}
        if pending:
            details["MaintenanceAutoAppliedAfter"] = utcnow() + timedelta(days=14)
        if applied := tunnel.get("LastMaintenanceApplied"):
            details["LastMaintenanceApplied"] = applied
        return ActionResult(
            {
                "VpnConnectionId": connection.id,
                "VpnGatewayId": connection.vpn_gateway_id,
                "TransitGatewayId": connection.transit_gateway_id,
                "CustomerGatewayId": connection.customer_gateway_id,
                "VpnTunnelOutsideIpAddress": tunnel["OutsideIpAddress"],
                "MaintenanceDetails": details,
            }
        )

    @method(VPNConnections)
    def replace_vpn_tunnel(self: Any) -> ActionResult:
        connection, tunnel = _tunnel(self)
        if _announced(connection, tunnel):
            self.ec2_backend.delete_tags([connection.id], {_announcement(tunnel): None})
            tunnel["LastMaintenanceApplied"] = utcnow()
        return ActionResult({"Return": True})

    @method(VPNConnections)
    def modify_vpn_connection(self: Any) -> ActionResult:
        """Attach the connection to another gateway at either end: its tunnels keep their addresses and
        keys."""
        connection = _connection(self)
        if customer := self._get_param("CustomerGatewayId"):
            self.ec2_backend.get_customer_gateway(customer)
            connection.customer_gateway_id = customer
        if gateway := self._get_param("VpnGatewayId"):
            self.ec2_backend.get_vpn_gateway(gateway)
            detach_vpn(self.ec2_backend, connection)
            connection.vpn_gateway_id, connection.transit_gateway_id = gateway, None
        if hub := self._get_param("TransitGatewayId"):
            if hub not in self.ec2_backend.transit_gateways:
                raise InvalidTransitGatewayID(hub)
            detach_vpn(self.ec2_backend, connection)
            connection.vpn_gateway_id, connection.transit_gateway_id = None, hub
            self.ec2_backend.create_transit_gateway_vpn_attachment(connection.id, hub)
        return ActionResult({"VpnConnection": connection})

    setattr(VPNConnection, "customer_gateway_configuration", property(_configuration))  # noqa: B010, mypy

    @method(VPNConnections)
    def create_vpn_connection_route(self: Any) -> ActionResult:
        connection, block = _route(self)
        if block not in [route["DestinationCidrBlock"] for route in connection.routes]:
            route = {"DestinationCidrBlock": block, "Source": "Static", "State": "available"}
            connection.routes.append(route)
        return EmptyResult()

    @method(VPNConnections)
    def delete_vpn_connection_route(self: Any) -> ActionResult:
        connection, block = _route(self)
        connection.routes = [route for route in connection.routes if route["DestinationCidrBlock"] != block]
        return EmptyResult()


def _connection(response: Any) -> Any:
    (connection,) = response.ec2_backend.describe_vpn_connections([response._get_param("VpnConnectionId")])
    return connection


def _tunnel(response: Any) -> tuple[Any, dict[str, Any]]:
    connection, outside = _connection(response), response._get_param("VpnTunnelOutsideIpAddress")
    for tunnel in connection.options["TunnelOptions"]:
        if tunnel["OutsideIpAddress"] == outside:
            return connection, tunnel
    raise InvalidParameterValueError(outside)


def _announced(connection: Any, tunnel: dict[str, Any]) -> bool:
    return any(tag["key"] == _announcement(tunnel) for tag in connection.get_tags())


def _announcement(tunnel: dict[str, Any]) -> str:
    return f"maintenance {tunnel['OutsideIpAddress']}"


def _route(response: Any) -> tuple[Any, str]:
    return _connection(response), response._get_param("DestinationCidrBlock")


def _telemetry(tunnel: dict[str, Any]) -> dict[str, Any]:
    """The telemetry of a tunnel without a peer."""
    return {
        "OutsideIpAddress": tunnel["OutsideIpAddress"],
        "Status": "DOWN",
        "StatusMessage": "",
        "AcceptedRouteCount": 0,
        "LastStatusChange": utcnow(),
    }


def _answered(given: dict[str, Any]) -> dict[str, Any]:
    """A request's tunnel options in the spelling of responses; lists are of {"Value": …} in both."""
    return {_RENAMED.get(name, name): value for name, value in given.items()}


def _tunnels(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The two tunnels in a response: the requested options, and values that AWS assigns."""
    tunnels = []
    for number in range(2):
        given = asked[number] if number < len(asked) else {}
        tunnel: dict[str, Any] = {
            "OutsideIpAddress": _outside_address(),
            "TunnelInsideCidr": _inside_block(),
            "PreSharedKey": mock_random.get_random_string(32),
        }
        tunnels.append(tunnel | _answered(given))
    return tunnels


def _outside_address() -> str:
    """An address of 198.18.0.0/15, which is not routed (RFC 2544)."""
    return f"198.{mock_random.randint(18, 19)}.{mock_random.randint(0, 255)}.{mock_random.randint(1, 254)}"


def _inside_block() -> str:
    while True:
        block = f"169.254.{mock_random.randint(0, 255)}.{mock_random.randint(0, 63) * 4}/30"
        if block not in _RESERVED:
            return block


def _configuration(self: Any) -> str:
    """The XML that a customer downloads; Terraform reads the tunnels' addresses and keys from it."""
    backend = self.ec2_backend
    customer = backend.get_customer_gateway(self.customer_gateway_id)
    if self.vpn_gateway_id:
        amazon_asn = backend.get_vpn_gateway(self.vpn_gateway_id).amazon_side_asn or 64512
    else:
        amazon_asn = backend.transit_gateways[self.transit_gateway_id].options.get("AmazonSideAsn", 64512)
    options = self.options or {"StaticRoutesOnly": False, "TunnelOptions": []}
    root = ElementTree.Element("vpn_connection", id=self.id)
    _texts(
        root,
        customer_gateway_id=self.customer_gateway_id,
        vpn_gateway_id=self.vpn_gateway_id or "",
        vpn_connection_type=self.type,
        vpn_connection_attributes="NoBGPVPNConnection" if options["StaticRoutesOnly"] else "",
    )
    for tunnel in options["TunnelOptions"]:
        root.append(_ipsec_tunnel(tunnel, customer, amazon_asn, static=options["StaticRoutesOnly"]))
    return ElementTree.tostring(root, encoding="unicode")


def _ipsec_tunnel(tunnel: Any, customer: Any, amazon_asn: Any, *, static: bool) -> ElementTree.Element:
    inside = IPv4Network(tunnel["TunnelInsideCidr"])
    element = ElementTree.Element("ipsec_tunnel")
    for side, outside, host, asn in (
        ("customer_gateway", customer.ip_address, 2, customer.bgp_asn),
        ("vpn_gateway", tunnel["OutsideIpAddress"], 1, amazon_asn),
    ):
        gateway = ElementTree.SubElement(element, side)
        _texts(ElementTree.SubElement(gateway, "tunnel_outside_address"), ip_address=outside)
        _texts(
            ElementTree.SubElement(gateway, "tunnel_inside_address"),
            ip_address=str(inside[host]),
            network_mask=str(inside.netmask),
            network_cidr=str(inside.prefixlen),
        )
        if not static:
            _texts(ElementTree.SubElement(gateway, "bgp"), asn=str(asn), hold_time="30")
    _texts(
        ElementTree.SubElement(element, "ike"),
        authentication_protocol=_first(tunnel, "Phase1IntegrityAlgorithms", "sha1").lower(),
        encryption_protocol=_first(tunnel, "Phase1EncryptionAlgorithms", "aes-128-cbc").lower(),
        lifetime=str(tunnel.get("Phase1LifetimeSeconds", 28800)),
        perfect_forward_secrecy=f"group{_first(tunnel, 'Phase1DHGroupNumbers', '2')}",
        mode="main",
        pre_shared_key=tunnel["PreSharedKey"],
    )
    ipsec = ElementTree.SubElement(element, "ipsec")
    _texts(
        ipsec,
        protocol="esp",
        authentication_protocol=_first(tunnel, "Phase2IntegrityAlgorithms", "hmac-sha1-96").lower(),
        encryption_protocol=_first(tunnel, "Phase2EncryptionAlgorithms", "aes-128-cbc").lower(),
        lifetime=str(tunnel.get("Phase2LifetimeSeconds", 3600)),
        perfect_forward_secrecy=f"group{_first(tunnel, 'Phase2DHGroupNumbers', '2')}",
        mode="tunnel",
        clear_df_bit="true",
        fragmentation_before_encryption="true",
        tcp_mss_adjustment="1379",
    )
    _texts(ElementTree.SubElement(ipsec, "dead_peer_detection"), interval="10", retries="3")
    return element


def _first(tunnel: Any, name: str, otherwise: str) -> str:
    values = tunnel.get(name)
    return str(values[0]["Value"]) if values else otherwise


def _texts(parent: ElementTree.Element, **texts: str) -> None:
    for tag, text in texts.items():
        ElementTree.SubElement(parent, tag).text = text
