"""What moto 5.2.5 lacks, or does otherwise than AWS, for the resources we render.

Each entry of ``EXTENSIONS`` is named after the API call it adds or mends. Delete an entry, with its module,
once moto has the behaviour: ``tests/localaws`` applies every resource type with real Terraform, so it says
whether that was right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

EXTENSIONS: Final[Mapping[str, str]] = {
    "EnableVgwRoutePropagation": "vgw_route_propagation",
    "CreateVpnConnection": "vpn_connections",
    "DescribeVpnGateways": "vpn_gateways",
    "GetHostedZone": "hosted_zone_vpcs",
    "PutLifecycleHook": "lifecycle_hooks",
    "CreateLoadBalancer": "load_balancers",
}
"""API call → the module here whose ``install()`` adds it."""


def install() -> None:
    """Add everything to the moto of this process. Once a process."""
    for module in EXTENSIONS.values():
        add = cast("Callable[[], None]", import_module(f"{__name__}.{module}").install)
        add()
