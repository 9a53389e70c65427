"""VPN servers: their addresses, and the configuration of each OpenVPN process."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from infra.model import Cluster, Outputs
from infra.model.remote import Listener, VpnServer
from infra.render.templating import fill


def public_host(server: VpnServer, outputs: Outputs) -> str:
    """The name or address that laptops connect to; empty if AWS has not assigned it yet."""
    told = outputs.instances.get(server.node)
    return server.host or (str(told.public) if told and told.public else "")


def private_address(server: VpnServer, outputs: Outputs) -> IPv4Address | None:
    """The server's private address; None if AWS has not assigned it yet."""
    told = outputs.instances.get(server.node)
    return server.source or (told.private if told else None)


_NOT_LAPTOPS: Final = 3
"""Addresses of a block that laptops do not get: the network's, the server's, the broadcast address."""

CIPHERS: Final = "AES-256-GCM:CHACHA20-POLY1305"
"""The second is for phones without AES in hardware. Both are AEAD ciphers, as data channel offload
requires."""


def listener_file(cluster: Cluster, server: VpnServer, listener: Listener) -> str:
    """``etc/openvpn/server/<listener>.conf``."""
    vpn, udp = cluster.access.vpn, listener.name == "udp"
    return fill(
        "openvpn/listener.conf.j2",
        name=listener.name,
        title=f"{server.site}, {listener.name.upper()} {listener.port}",
        proto="udp4" if udp else "tcp4-server",
        port=listener.port,
        udp=udp,
        tcp=not udp,
        # A gateway at a physical site has addresses in several networks. Replies must leave from the address
        # that received the packet.
        multihome=udp and server.kind == "physical",
        device=listener.device,
        network=listener.block.network_address,
        netmask=listener.block.netmask,
        address=listener.address,
        max_clients=listener.block.num_addresses - _NOT_LAPTOPS,
        mtu=vpn.mtu,
        ciphers=CIPHERS,
        session_seconds=vpn.session_seconds,
        routes=[] if vpn.full_tunnel else vpn.routes,
        full_tunnel=vpn.full_tunnel,
        domain=vpn.domains[0],
        domains=vpn.domains,
    )
