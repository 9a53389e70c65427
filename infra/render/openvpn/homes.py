"""Conflicts between a laptop's local network and the VPN."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.openvpn.servers import public_host

_MEND = "give the home network another range in its router (192.168.178.0/24, say), or use a phone's hotspot"


def clashes(cluster: Cluster, home: IPv4Network, outputs: Outputs = NO_OUTPUTS) -> tuple[str, ...]:
    """What a laptop in the network ``home`` cannot reach, one sentence each, with a fix.

    The longer prefix wins on every system (RFC 1812, "Forwarding"), so either network may be hidden.
    """
    vpn = cluster.access.vpn
    ways = [] if vpn.full_tunnel else [_clash(home, route, "the cluster's") for route in sorted(vpn.routes)]
    ways += [
        _clash(home, listener.block, f"laptops' at {server.site}")
        for server in vpn.servers
        for listener in server.listeners
    ]
    if vpn.full_tunnel:
        ways += [_hidden(home, route) for route in sorted(vpn.routes)]
    hosts = {server.site: public_host(server, outputs) for server in vpn.servers}
    ways += [_inside(home, site, host) for site, host in hosts.items()]
    return tuple(way for way in ways if way)


def _clash(home: IPv4Network, block: IPv4Network, whose: str) -> str:
    if not home.overlaps(block):
        return ""
    if home.prefixlen > block.prefixlen:
        lost = f"{home} of the cluster will not be reached: the laptop looks for it at home"
    elif home == block:
        lost = f"either the cluster's {block} or the home network will not be reached, as the laptop chooses"
    else:
        lost = f"{block} of the home network is out of reach while connected: it is looked for in the cluster"
    return f"the home network {home} overlaps {whose} range {block}: {lost}; {_MEND}"


def _hidden(home: IPv4Network, block: IPv4Network) -> str:
    """With a full tunnel, the laptop keeps the route to its local network, whatever its size."""
    if not home.overlaps(block):
        return ""
    lost = home if home.subnet_of(block) else block
    return (
        f"the home network {home} overlaps the cluster's range {block}: {lost} of the cluster will not be "
        f"reached: the laptop looks for it at home; {_MEND}"
    )


def _inside(home: IPv4Network, site: str, host: str) -> str:
    try:
        address = IPv4Address(host)
    except AddressValueError:
        return ""
    if address not in home:
        return ""
    return (
        f"the VPN server at {site} ({host}) has an address of the home network {home}: the laptop looks for "
        f"it at home; {_MEND}"
    )
