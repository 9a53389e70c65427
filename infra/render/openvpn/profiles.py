"""Profiles of laptops: one file that every OpenVPN client can import, and a connection for NetworkManager,
which would send all traffic through an imported profile."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from infra.errors import UsageError
from infra.model import Cluster, Outputs
from infra.model.remote import VpnServer
from infra.render.openvpn.servers import CIPHERS, public_host
from infra.render.templating import fill

_SECONDS: Final = 8
"""Seconds to wait for a server before the next one is tried. NetworkManager gives up after 60."""


def profile(cluster: Cluster, outputs: Outputs, login: str) -> str:
    """The settings of a user's ``.ovpn``, without secrets: the driver appends ``<ca>``, ``<cert>``,
    ``<key>`` and ``<tls-crypt-v2>``.

    Servers whose address AWS has not assigned yet are left out, see ``unknown_hosts``.

    Raises:
        UsageError: The user may not have a profile, or no server has a known address.
    """
    words = _words(cluster, outputs, login)
    return fill("openvpn/profile.ovpn.j2", cluster=cluster.name.replace("\n", " "), login=login, **words)


def network_manager(cluster: Cluster, outputs: Outputs, login: str, connection: str, folder: str) -> str:
    """The same as a NetworkManager connection (nm-settings-keyfile(5)), whose certificates and keys are
    files in ``folder`` of the laptop.

    Raises:
        UsageError: As ``profile`` does.
    """
    vpn, words = cluster.access.vpn, _words(cluster, outputs, login)
    return fill(
        "openvpn/profile.nmconnection.j2",
        connection=connection,
        uuid=uuid5(NAMESPACE_URL, f"openvpn://{vpn.name}/{connection}"),
        folder=folder,
        servers=", ".join("{host}:{port}:{proto}".format_map(each) for each in words["remotes"]),
        # GLib's list format (GKeyFile): a separator after each element.
        search="".join(f"{domain};" for domain in vpn.domains),
        split=not vpn.full_tunnel,
        full_tunnel=vpn.full_tunnel,
        **words,
    )


def _words(cluster: Cluster, outputs: Outputs, login: str) -> dict[str, Any]:
    """The values common to both files."""
    vpn = cluster.access.vpn
    if login not in {user.login for user in vpn.users}:
        raise UsageError(f"{login} gets no profile: access.users has no user of that name with 'vpn: true'")
    if not vpn.servers:
        raise UsageError("access.vpn.servers: the spec has no VPN server")
    if not vpn.openvpn:
        raise UsageError("access.vpn.kinds: the servers do not speak OpenVPN")
    hosts = {server.site: host for server in vpn.servers if (host := public_host(server, outputs))}
    known = [server for server in vpn.servers if server.site in hosts]
    if not known:
        raise UsageError(
            "no VPN server's address is known yet: AWS decides it in 'invoke apply', 'invoke outputs' reads "
            "it where somebody else has applied, or a public zone gives it a name (dns.public)"
        )
    ordered = sorted(known, key=lambda server: _rank(login, server)) if vpn.random else known
    # All servers by UDP first: TCP inside TCP is slow on a line that loses packets.
    remotes = [
        {"host": hosts[server.site], "port": listener.port, "proto": listener.name}
        for protocol in ("udp", "tcp")
        for server in ordered
        for listener in server.listeners
        if listener.name == protocol
    ]
    return {
        "remotes": remotes,
        "server_name": vpn.name,
        "ciphers": CIPHERS,
        "mtu": vpn.mtu,
        "seconds": _SECONDS,
    }


def unknown_hosts(cluster: Cluster, outputs: Outputs) -> tuple[str, ...]:
    """Sites of servers that profiles leave out, as AWS has not assigned their address yet."""
    return tuple(server.site for server in cluster.access.vpn.servers if not public_host(server, outputs))


def _rank(login: str, server: VpnServer) -> str:
    """A sort key that differs between users, to distribute them. ``remote-random`` would mix TCP with UDP."""
    return sha256(f"{login} {server.site}".encode()).hexdigest()
