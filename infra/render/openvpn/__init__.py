"""VPN servers: a tree of files for each, to be copied to ``/`` of its machine; and clients' profiles.

::

    <site>/
      etc/openvpn/server/<listener>.conf    one process per protocol
      etc/wireguard/wg-laptops.conf         WireGuard, if it is used
      etc/nftables/remote-access.nft        what each client may reach, by its user's groups
      etc/remote-access/dnsmasq.conf        the clients' DNS resolver
      etc/remote-access/hosts               names that it resolves itself
      …                                     units, scripts and users, the same on every server

The machine is a Debian 12 or an Ubuntu 22.04 or 24.04 with the packages ``openvpn``, ``nftables``,
``dnsmasq-base``, ``python3`` and ``wireguard-tools``. Certificates and keys are not here: ``drive`` puts
``ca.crt``, ``server.crt``, ``server.key``, ``tls-crypt-v2.key`` and ``crl.pem`` beside OpenVPN's files, and
WireGuard's key and peers beside its own.
"""

from __future__ import annotations

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.remote import VpnServer
from infra.render import names
from infra.render.openvpn import wireguard
from infra.render.openvpn.firewall import firewall
from infra.render.openvpn.homes import clashes
from infra.render.openvpn.profiles import network_manager, profile, unknown_hosts
from infra.render.openvpn.servers import listener_file, private_address
from infra.render.templating import copied

__all__ = ["clashes", "network_manager", "profile", "render", "unknown_hosts"]


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Files:
    """Every server's tree, by site; without outputs, rules and names lack values that AWS assigns."""
    return merge(under(server.site, _tree(cluster, server, outputs)) for server in cluster.access.vpn.servers)


def _tree(cluster: Cluster, server: VpnServer, outputs: Outputs) -> Files:
    listeners = {
        f"etc/openvpn/server/{listener.name}.conf": listener_file(cluster, server, listener)
        for listener in server.listeners
        if listener.name != "wireguard"
    }
    own = {
        "etc/nftables/remote-access.nft": firewall(cluster, server, outputs),
        "etc/remote-access/dnsmasq.conf": _dnsmasq(cluster, server, outputs),
        "etc/remote-access/hosts": names.hosts(
            names.known_hosts(cluster, outputs, resolver=server.resolver), site=server.site
        ),
    }
    return merge([listeners, own, wireguard.files(cluster, server), copied("openvpn")])


def _dnsmasq(cluster: Cluster, server: VpnServer, outputs: Outputs) -> str:
    own = private_address(server, outputs)
    return names.dnsmasq(
        cluster,
        outputs,
        whose=f"laptops at {server.site}",
        unit="remote-access-dns.service",
        known="/etc/remote-access/hosts",
        addresses=[
            *(listener.address for listener in server.listeners),
            # Gateways of physical sites query this resolver.
            *([own] if own and server.kind == "aws" else []),
        ],
        source=server.source,
        resolver=server.resolver,
        in_overlay=True,
    )
