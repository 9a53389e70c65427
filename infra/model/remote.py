"""Remote access: VPN servers, and what their clients may reach."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from msgspec import Struct


class Listener(Struct, frozen=True):
    """An OpenVPN process, each of which has one protocol (openvpn(8), ``--proto``); or WireGuard."""

    name: Literal["udp", "tcp", "wireguard"]
    port: int
    device: str
    """The network interface: ``tun-udp``."""
    block: IPv4Network
    """The addresses of its clients."""
    address: IPv4Address
    """The server's address in ``block``, at which the clients' DNS resolver answers."""

    @property
    def protocol(self) -> Literal["udp", "tcp"]:
        """The protocol of ``port``."""
        return "tcp" if self.name == "tcp" else "udp"

    @property
    def service(self) -> str:
        """The name of its systemd service: ``openvpn-udp``, ``wireguard``."""
        return self.name if self.name == "wireguard" else f"openvpn-{self.name}"


class VpnServer(Struct, frozen=True):
    """A VPN server for laptops."""

    site: str
    key: str
    kind: Literal["aws", "physical"]
    host: str
    """The name or address that clients connect to; empty if AWS assigns it at apply (an Elastic IP address
    without a public zone)."""
    node: str
    """The instance's or physical node's name."""
    fqdn: str
    """Its internal name."""
    listeners: tuple[Listener, ...]
    """In the order in which clients try them."""
    source: IPv4Address | None
    """The source address of clients' packets after the server's NAT; None if AWS assigns the server's
    address. Networks beyond the server's own have no route back to clients' addresses: neither VPC
    peering nor a virtual private gateway routes for others (AWS VPC Peering Guide, "Edge to edge
    routing")."""
    pods: IPv4Network | None
    """The pod block of its node. No pods run there: the first address is the server's own in the pod
    network, and the source that pods see for its clients. None if the range is too small."""
    resolver: IPv4Address | None
    """The resolver of the private zone: the VPC's own, at its second address (VPC User Guide, "DNS
    attributes"). None at a physical site, where the servers in regions are queried."""


class Reach(Struct, frozen=True):
    """A target that clients of a group may reach."""

    name: str
    """``pods``, ``services``, ``ssh``, ``nodes`` or ``everything``."""
    blocks: tuple[IPv4Network, ...]
    instances: tuple[str, ...]
    """Host names of cloud machines, whose addresses AWS assigns, see ``Outputs``."""
    tcp_ports: tuple[int, ...]
    """Only these ports; if empty, all ports and protocols."""


class VpnGroup(Struct, frozen=True):
    """A group of users in the servers' firewalls."""

    name: str
    reach: tuple[Reach, ...]


class VpnUser(Struct, frozen=True):
    """A user who gets a profile."""

    login: str
    groups: tuple[str, ...]
    expires: str | None
    """The last day of access, as an ISO date."""
    devices: IPv4Network | None = None
    """The addresses of the user's WireGuard devices, the same at every server; None without WireGuard."""


class Wireguard(Struct, frozen=True):
    """WireGuard settings common to all servers."""

    clients: IPv4Network
    """The range of all devices."""
    mtu: int
    """The MTU of devices' interfaces, in bytes."""


class Vpn(Struct, frozen=True):
    """Remote access for laptops."""

    name: str
    """The common name of every server's certificate, ``vpn.research.internal``, which profiles verify."""
    openvpn: bool
    """Whether servers offer OpenVPN."""
    wireguard: Wireguard | None
    """None if servers do not offer WireGuard."""
    first: Literal["openvpn", "wireguard"]
    """The default kind of profiles."""
    clients: IPv4Network
    """The range of OpenVPN clients."""
    pods: IPv4Network | None
    """The range with ``pods`` of all servers, including future ones, in which no pod has its address."""
    servers: tuple[VpnServer, ...]
    """In the order in which clients try them."""
    random: bool
    full_tunnel: bool
    routes: tuple[IPv4Network, ...]
    """Networks that clients route through the tunnel: VPCs, sites, pods and services."""
    domains: tuple[str, ...]
    """Domains that clients resolve with the servers' resolver, the search domain first."""
    cluster_domain: str
    """The domain of services and pods."""
    cluster_resolver: IPv4Address
    """Its DNS service: the tenth address of the service range, as in kubeadm."""
    mtu: int
    """The MTU of OpenVPN's TUN interfaces, in bytes."""
    mss: int
    """The MSS of all clients' connections, for the interface with the smallest MTU."""
    certificate_days: int
    session_seconds: int
    groups: tuple[VpnGroup, ...]
    users: tuple[VpnUser, ...]

    @property
    def laptops(self) -> tuple[IPv4Network, ...]:
        """The ranges of all clients and devices."""
        return (self.clients, *([self.wireguard.clients] if self.wireguard else []))
