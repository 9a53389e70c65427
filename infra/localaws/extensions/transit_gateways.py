"""Transit gateways: default route tables only if enabled, and associations that can be removed.

moto creates a default route table regardless of the options, associates each VPC with it in a way that
cannot be undone, VPN connections not at all, keeps the table after its gateway is deleted, drops a VPC
attachment's tags and, immediately, a deleted attachment, and stores a route's attachment where clients do
not find it.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TransitGatewayRequestOptions.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TransitGatewayRoute.html
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.models import EC2Backend
from moto.ec2.models.transit_gateway import TransitGateway
from moto.ec2.models.transit_gateway_attachments import TransitGatewayAttachment
from moto.ec2.responses.transit_gateway_attachments import (
    TransitGatewayAttachment as TransitGatewayAttachmentResponse,
)

from infra.localaws.patching import around, method


def install() -> None:
    _backend()
    _response()


def _backend() -> None:
    @around(TransitGateway)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        table = self.default_route_table
        association = self.options["DefaultRouteTableAssociation"] == "enable"
        propagation = self.options["DefaultRouteTablePropagation"] == "enable"
        table.default_association_route_table = association
        table.default_propagation_route_table = propagation
        if not association:
            self.options["AssociationDefaultRouteTableId"] = None
        if not propagation:
            self.options["PropagationDefaultRouteTableId"] = None
        if not association and not propagation:
            del self.ec2_backend.transit_gateways_route_tables[table.id]
            self.default_route_table = None

    @around(EC2Backend)
    def delete_transit_gateway(original: Any, self: Any, transit_gateway_id: str) -> Any:
        gateway = original(self, transit_gateway_id)
        if gateway.default_route_table is not None:
            self.transit_gateways_route_tables.pop(gateway.default_route_table.id, None)
        return gateway

    setattr(TransitGatewayAttachment, "association", property(_association))  # noqa: B010, mypy

    @method(EC2Backend)
    def create_transit_gateway_vpc_attachment(
        self: Any, transit_gateway_id: str, vpc_id: str, subnet_ids: list[str], **kwargs: Any
    ) -> Any:
        return _attach_vpc(self, transit_gateway_id, vpc_id, subnet_ids, kwargs)

    @around(EC2Backend)
    def create_transit_gateway_vpn_attachment(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        attachment = original(self, *args, **kwargs)
        _join(self, self.transit_gateways[attachment.transit_gateway_id], attachment)
        return attachment

    @around(EC2Backend)
    def delete_vpn_connection(original: Any, self: Any, vpn_connection_id: str) -> Any:
        connection = original(self, vpn_connection_id)
        detach_vpn(self, connection)
        return connection

    @around(EC2Backend)
    def delete_transit_gateway_vpc_attachment(
        original: Any, self: Any, transit_gateway_attachment_id: str
    ) -> Any:
        _forget(self, transit_gateway_attachment_id)
        attachment = original(self, transit_gateway_attachment_id)
        # It is returned as deleted for a while, which clients wait for.
        self.transit_gateway_attachments[attachment.id] = attachment
        return attachment

    @around(EC2Backend)
    def delete_transit_gateway_peering_attachment(
        original: Any, self: Any, transit_gateway_attachment_id: str
    ) -> Any:
        _forget(self, transit_gateway_attachment_id)
        return original(self, transit_gateway_attachment_id)

    @around(EC2Backend)
    def create_transit_gateway_route(original: Any, self: Any, **kwargs: Any) -> Any:
        route = original(self, **kwargs)
        if attachment := route.pop("transitGatewayAttachments", None):
            route["TransitGatewayAttachments"] = [
                {
                    "ResourceId": attachment["resourceId"],
                    "ResourceType": attachment["resourceType"],
                    "TransitGatewayAttachmentId": attachment["transitGatewayAttachmentId"],
                }
            ]
        return route


def _response() -> None:
    @around(TransitGatewayAttachmentResponse)
    def create_transit_gateway_vpc_attachment(original: Any, self: Any) -> ActionResult:
        answer: Any = original(self)
        tags = self._parse_tag_specification().get("transit-gateway-attachment", {})
        answer.result["TransitGatewayVpcAttachment"].add_tags(tags)
        return ActionResult(answer.result)


def _association(self: Any) -> dict[str, str] | None:
    """The route table that an attachment is associated with, if any."""
    data = self._association_data
    if self.state == "available" and data.get("transitGatewayRouteTableId"):
        return {"State": data["state"], "TransitGatewayRouteTableId": data["transitGatewayRouteTableId"]}
    return None


def _attach_vpc(backend: Any, gateway_id: str, vpc_id: str, subnet_ids: list[str], more: Any) -> Any:
    from moto.ec2.exceptions import DuplicateTransitGatewayAttachmentError, InvalidTransitGatewayID
    from moto.ec2.models.transit_gateway_attachments import TransitGatewayVpcAttachment

    gateway = backend.transit_gateways.get(gateway_id)
    if gateway is None:
        raise InvalidTransitGatewayID(
            gateway_id, f"Transit Gateway {gateway_id} was deleted or does not exist."
        )
    if backend.describe_transit_gateway_vpc_attachments(
        filters={"transit-gateway-id": gateway_id, "vpc-id": [vpc_id], "state": ["available"]}
    ):
        raise DuplicateTransitGatewayAttachmentError(gateway_id)
    attachment = TransitGatewayVpcAttachment(
        backend, transit_gateway=gateway, vpc_id=vpc_id, subnet_ids=subnet_ids, **more
    )
    backend.transit_gateway_attachments[attachment.id] = attachment
    _join(backend, gateway, attachment)
    return attachment


def detach_vpn(backend: Any, connection: Any) -> None:
    """Detach a VPN connection that is deleted, or moved to another gateway."""
    for attachment in backend.transit_gateway_attachments.values():
        if attachment.resource_id == connection.id:
            attachment.state = "deleted"
            _forget(backend, attachment.id)


def _join(backend: Any, gateway: Any, attachment: Any) -> None:
    """Associate a new attachment with the default route tables, according to the gateway's options."""
    if gateway.options["DefaultRouteTableAssociation"] == "enable":
        backend.associate_transit_gateway_route_table(attachment.id, gateway.default_route_table.id)
    if gateway.options["DefaultRouteTablePropagation"] == "enable":
        backend.enable_transit_gateway_route_table_propagation(attachment.id, gateway.default_route_table.id)


def _forget(backend: Any, attachment: str) -> None:
    """Remove a deleted attachment from its route tables."""
    backend.transit_gateway_associations.pop(attachment, None)
    backend.transit_gateway_propagations.pop(attachment, None)
    for table in backend.transit_gateways_route_tables.values():
        table.route_table_associations.pop(attachment, None)
        table.route_table_propagation = [
            row for row in table.route_table_propagation if row.transitGatewayAttachmentId != attachment
        ]
