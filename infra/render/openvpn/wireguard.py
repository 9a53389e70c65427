"""WireGuard on VPN servers, and profiles of devices. Keys are not here: ``drive`` has them.

In a server's tree::

    etc/wireguard/wg-laptops.conf         for wg-quick: address, port, size
    etc/wireguard/wg-laptops.key          put there by ``drive``, as are
    etc/remote-access/peers.json          the devices, by key
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from infra.errors import UsageError
from infra.files import Files
from infra.model import Cluster, Outputs
from infra.model.remote import Listener, Vpn, VpnServer
from infra.render.openvpn.servers import public_host
from infra.render.templating import fill

_WITH_KEY: Final = "# Anyone with this key can connect: keep it secret, and use it on one device only."
_WITHOUT_KEY: Final = "# Put the private key here that is on this device, and nowhere else."

EVERYTHING = ("0.0.0.0/0", "::/0")
"""Includes IPv6: the VPN has none, so IPv6 traffic must not bypass the tunnel."""


def files(cluster: Cluster, server: VpnServer) -> Files:
    """The WireGuard files of a server's tree; none if it does not use WireGuard."""
    listener, vpn = listener_of(server), cluster.access.vpn
    if listener is None or vpn.wireguard is None:
        return {}
    text = fill(
        "openvpn/wireguard.conf.j2",
        site=server.site,
        device=listener.device,
        address=f"{listener.address}/{listener.block.prefixlen}",
        port=listener.port,
        mtu=vpn.wireguard.mtu,
    )
    return {f"etc/wireguard/{listener.device}.conf": text}


def listener_of(server: VpnServer) -> Listener | None:
    """A server's WireGuard listener."""
    return next((each for each in server.listeners if each.name == "wireguard"), None)


def servers_of(vpn: Vpn, outputs: Outputs, site: str = "") -> tuple[VpnServer, ...]:
    """The servers for which a device gets profiles: all with a known address, or the one of ``site``.

    Raises:
        UsageError: The site's server does not use WireGuard, or no server has a known address.
    """
    speaking = [server for server in vpn.servers if listener_of(server)]
    if not speaking:
        raise UsageError("access.vpn.kinds: no server offers WireGuard: add 'wireguard'")
    if site and site not in {server.site for server in speaking}:
        sites = ", ".join(server.site for server in speaking)
        raise UsageError(f"--server: {site} has no VPN server; there are servers at {sites}")
    wanted = [server for server in speaking if site in {"", server.site}]
    if known := tuple(server for server in wanted if public_host(server, outputs)):
        return known
    raise UsageError(
        f"the address of the VPN server at {wanted[0].site} is not known yet: AWS decides it in 'invoke "
        "apply', 'invoke outputs' reads it where somebody else has applied, or a public zone gives it a name "
        "(dns.public)"
    )


def profile(
    cluster: Cluster,
    outputs: Outputs,
    server: VpnServer,
    *,
    whose: str,
    address: IPv4Address,
    private_key: str,
    server_key: str,
) -> str:
    """A device's complete ``.conf``, for wg-quick(8) and the apps.

    ``private_key`` is empty if the device generated its own; ``server_key`` is the server's public key.
    """
    listener, vpn = listener_of(server), cluster.access.vpn
    assert listener is not None
    assert vpn.wireguard is not None
    # The resolver's address is in the range of devices, which the cluster's routes do not include.
    inside = [str(block) for block in (*vpn.routes, listener.address)]
    return fill(
        "openvpn/profile.conf.j2",
        cluster=cluster.name.replace("\n", " "),
        whose=whose,
        site=server.site,
        address=address,
        key=[_WITH_KEY, f"PrivateKey = {private_key}"] if private_key else [_WITHOUT_KEY, "# PrivateKey ="],
        dns=", ".join([str(listener.address), *vpn.domains]),
        mtu=vpn.wireguard.mtu,
        server_key=server_key,
        endpoint=f"{public_host(server, outputs)}:{listener.port}",
        allowed=", ".join(EVERYTHING if vpn.full_tunnel else inside),
    )
