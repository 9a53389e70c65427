"""Where servers are: what the spec says, or what AWS answered."""

from __future__ import annotations

from ipaddress import IPv4Address

from infra.model import Outputs
from infra.model.remote import VpnServer


def public_host(server: VpnServer, outputs: Outputs) -> str:
    """The name or address that laptops connect to; empty where AWS has yet to decide it."""
    told = outputs.instances.get(server.node)
    return server.host or (str(told.public) if told and told.public else "")


def private_address(server: VpnServer, outputs: Outputs) -> IPv4Address | None:
    """The server's own address inside; None where AWS has yet to decide it."""
    told = outputs.instances.get(server.node)
    return server.source or (told.private if told else None)
