"""What AWS says of something that it does not know, or not yet.

A service whose model has an error for it answers that one. EC2's model has no errors: it answers the code of
its API reference ("Error codes") where an id is asked for, and an empty list where a filter is. Auto Scaling
and CloudWatch Logs answer empty lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl

from infra.localaws.request import Call

MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {"elasticfilesystem": "efs", "elasticloadbalancing": "elbv2", "monitoring": "cloudwatch"}
)
"""Name in a signature → botocore's name of the service's model, where they differ."""

EC2_CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "acl": "InvalidNetworkAclID.NotFound",
        "ami": "InvalidAMIID.NotFound",
        "cgw": "InvalidCustomerGatewayID.NotFound",
        "dopt": "InvalidDhcpOptionID.NotFound",
        "eipalloc": "InvalidAllocationID.NotFound",
        "eni": "InvalidNetworkInterfaceID.NotFound",
        "fl": "InvalidFlowLogId.NotFound",
        "i": "InvalidInstanceID.NotFound",
        "igw": "InvalidInternetGatewayID.NotFound",
        "lt": "InvalidLaunchTemplateId.NotFound",
        "nat": "NatGatewayNotFound",
        "pcx": "InvalidVpcPeeringConnectionID.NotFound",
        "rtb": "InvalidRouteTableID.NotFound",
        "sg": "InvalidGroup.NotFound",
        "sgr": "InvalidSecurityGroupRuleId.NotFound",
        "subnet": "InvalidSubnetID.NotFound",
        "tgw": "InvalidTransitGatewayID.NotFound",
        "tgw-attach": "InvalidTransitGatewayAttachmentID.NotFound",
        "tgw-rtb": "InvalidRouteTableID.NotFound",
        "vgw": "InvalidVpnGatewayID.NotFound",
        "vol": "InvalidVolume.NotFound",
        "vpc": "InvalidVpcID.NotFound",
        "vpce": "InvalidVpcEndpointId.NotFound",
        "vpn": "InvalidVpnConnectionID.NotFound",
    }
)
"""Prefix of an id → EC2's code for one that does not exist."""

_ARN_CODES: Final = {
    ":db:": "DBInstanceNotFound",
    ":pg:": "DBParameterGroupNotFound",
    ":subgrp:": "DBSubnetGroupNotFoundFault",
}
"""RDS's codes, by what an ARN holds."""

_ID: Final = re.compile(r"^(?P<prefix>[a-z]+(?:-[a-z]+)?)-[0-9a-f]{8,17}$")
_NOUN: Final = re.compile(r"NotFound|NoSuch|DoesNotExist|NonExistent")
_ENDING: Final = re.compile(r"(?:Exception|Fault)$")


def code(call: Call) -> str:
    """The error of a call that asks for something unknown; empty where it is answered with an empty list."""
    match call.service:
        case "s3":
            return "NoSuchBucket"
        case "ec2":
            return next(_ec2_codes(call), "")
        case _:
            return _from_model(call)


def empty(call: Call) -> tuple[str, str]:
    """The answer that nothing was found, and its content type."""
    if call.service == "ec2":
        return f"<{call.action}Response><requestId>0</requestId></{call.action}Response>", "text/xml"
    operation = _operation(call.service, call.action)
    if operation is not None and operation.service_model.protocol in ("json", "rest-json"):
        members = operation.output_shape.members if operation.output_shape else {}
        lists: dict[str, list[str]] = {
            name: [] for name, shape in members.items() if shape.type_name == "list"
        }
        return json.dumps(lists), "application/x-amz-json-1.1"
    # Answers of the query protocol hold what they say in a result.
    return f"<{call.action}Response><{call.action}Result/></{call.action}Response>", "text/xml"


def _ec2_codes(call: Call) -> Iterator[str]:
    for name, value in parse_qsl(call.text.partition("\n")[2]):
        if name.startswith("Filter."):
            continue
        if (found := _ID.match(value)) and found["prefix"] in EC2_CODES:
            yield EC2_CODES[found["prefix"]]


def _from_model(call: Call) -> str:
    operation = _operation(call.service, call.action)
    shapes = [shape for shape in operation.error_shapes if _NOUN.search(shape.name)] if operation else []
    codes = {shape.name: str(shape.metadata.get("error", {}).get("code", shape.name)) for shape in shapes}
    for part, wanted in _ARN_CODES.items():
        if call.service == "rds" and part in call.text.replace("%3A", ":"):
            return wanted
    # Which of several is told by what the request asks for: its parameters first, then all of it.
    parameters = re.sub(r"^[^?]*|Action=\w+", "", call.text)
    for text in (parameters, call.text):
        plain = re.sub(r"[^a-z]", "", text.lower())
        for name in sorted(codes, key=len, reverse=True):
            if _ENDING.sub("", _NOUN.sub("", name)).lower() in plain:
                return codes[name]
    return next(iter(codes.values()), "")


@cache
def _operation(service: str, action: str) -> Any:
    """botocore's model of an API call; None where it has none."""
    from botocore.exceptions import UnknownServiceError
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    library: Any = Loader()
    try:
        model = ServiceModel(library.load_service_model(MODELS.get(service, service), "service-2"))
    except UnknownServiceError:
        return None
    return model.operation_model(action) if action in model.operation_names else None
