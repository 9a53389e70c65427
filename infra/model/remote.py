"""Remote access: the servers for laptops, and what laptops may reach."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from msgspec import Struct


class Listener(Struct, frozen=True):
    """One OpenVPN process, as a process has one protocol (openvpn(8), ``--proto``); or WireGuard."""

    name: Literal["udp", "tcp", "wireguard"]
    port: int
    device: str
    """Its interface: ``tun-udp``."""
    block: IPv4Network
    """The addresses of its laptops."""
    address: IPv4Address
    """Its own, in ``block``. Laptops' resolver answers there."""

    @property
    def protocol(self) -> Literal["udp", "tcp"]:
        """What ``port`` is of."""
        return "tcp" if self.name == "tcp" else "udp"

    @property
    def service(self) -> str:
        """Its name among others of a machine: ``openvpn-udp``, ``wireguard``."""
        return self.name if self.name == "wireguard" else f"openvpn-{self.name}"


class VpnServer(Struct, frozen=True):
    """A place where laptops come in."""

    site: str
    key: str
    kind: Literal["aws", "physical"]
    host: str
    """The name laptops connect to, or an address; empty where AWS decides it in apply (an elastic address
    without a public zone)."""
    node: str
    """The instance's or physical node's name."""
    fqdn: str
    """Its name inside."""
    listeners: tuple[Listener, ...]
    """In the order laptops try them."""
    source: IPv4Address | None
    """What laptops' packets carry as their source once they leave the server; None where AWS decides the
    server's address. Networks beyond the server's own have no way back to laptops' own addresses: neither
    VPC peering nor a virtual private gateway routes for others (AWS VPC Peering Guide, "Edge to edge
    routing")."""
    pods: IPv4Network | None
    """The block of pods' addresses that its node keeps. No pod runs there: the first address is the server's
    own among pods, and what they see of its laptops. None in a range too small for that."""
    resolver: IPv4Address | None
    """Who answers for the private zone: the VPC's own resolver, at its second address (VPC User Guide, "DNS
    attributes"). None at a physical site: the servers in regions answer it."""


class Reach(Struct, frozen=True):
    """Something that laptops of a group may reach."""

    name: str
    """``pods``, ``services``, ``ssh``, ``nodes`` or ``everything``."""
    blocks: tuple[IPv4Network, ...]
    instances: tuple[str, ...]
    """Cloud machines by host name, whose addresses AWS decides, see ``Outputs``."""
    tcp_ports: tuple[int, ...]
    """On these alone; on all, and by every protocol, where empty."""


class VpnGroup(Struct, frozen=True):
    """A group of people, as the servers' firewalls know it."""

    name: str
    reach: tuple[Reach, ...]


class VpnUser(Struct, frozen=True):
    """Somebody who gets a profile."""

    login: str
    groups: tuple[str, ...]
    expires: str | None
    """ISO date: the last day of access."""
    devices: IPv4Network | None = None
    """The addresses of the user's WireGuard devices, the same at every server; None without WireGuard."""


class Wireguard(Struct, frozen=True):
    """What all servers' WireGuard has in common."""

    clients: IPv4Network
    """All devices."""
    mtu: int
    """Of devices' interfaces, in bytes."""


class Vpn(Struct, frozen=True):
    """Remote access for laptops."""

    name: str
    """The common name of every server's certificate, ``vpn.research.internal``: profiles demand it."""
    openvpn: bool
    """Whether servers speak OpenVPN."""
    wireguard: Wireguard | None
    """None where they do not speak it."""
    first: Literal["openvpn", "wireguard"]
    """The kind of a profile for which none is named."""
    clients: IPv4Network
    """OpenVPN's laptops."""
    pods: IPv4Network | None
    """Where ``pods`` of all servers are, those to come among them: no pod is in it."""
    servers: tuple[VpnServer, ...]
    """In the order laptops try them."""
    random: bool
    full_tunnel: bool
    routes: tuple[IPv4Network, ...]
    """What laptops send through the tunnel: VPCs, sites, pods and services."""
    domains: tuple[str, ...]
    """Domains that laptops ask the servers' resolver for, the search domain first."""
    cluster_domain: str
    """The domain of services and pods."""
    cluster_resolver: IPv4Address
    """The service that answers for it: the tenth address of the services' range, as kubeadm has it."""
    mtu: int
    """Of OpenVPN's TUN interfaces, in bytes."""
    mss: int
    """Of all laptops' connections: what the narrowest interface carries."""
    certificate_days: int
    session_seconds: int
    groups: tuple[VpnGroup, ...]
    users: tuple[VpnUser, ...]

    @property
    def laptops(self) -> tuple[IPv4Network, ...]:
        """The addresses of all laptops and devices."""
        return (self.clients, *([self.wireguard.clients] if self.wireguard else []))
