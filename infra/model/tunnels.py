"""The gateways of physical sites and their IPsec tunnels, one end of each as its gateway sees it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from msgspec import Struct

from infra.model.places import Routing


class SiteTunnel(Struct, frozen=True):
    """One IPsec tunnel, as the gateway of one physical site sees it."""

    name: str
    """Unique on the gateway, swanctl's connection: ``us-west-2-1``, ``rack-b-1``."""
    link: str
    """The link it belongs to: ``rack-a-us-west-2``, ``rack-a-rack-b``."""
    number: int
    """1 and 2 of an AWS link; 1 between sites."""
    kind: Literal["aws", "site"]
    peer: str
    """The name of the site at the other end, an AWS site or a physical one."""
    interface: str
    """The XFRM interface, at most 15 characters."""
    if_id: int
    """What ties the interface to its security associations: unique, as the inside block is."""
    mtu: int
    """Of packets inside the tunnel, in bytes."""
    mss: int
    """Of TCP segments inside the tunnel, in bytes."""
    local: IPv4Address | None
    """The public address it leaves from; None behind NAT, where the gateway does not have it."""
    local_id: str
    """Its IKE identity: the public address."""
    remote: IPv4Address | None
    """The other end's public address; None where AWS decides it, see ``Outputs``."""
    encapsulated: bool
    """Whether ESP always travels in UDP (RFC 3948): for a gateway behind NAT."""
    initiates: bool
    """Whether this end begins."""
    inside_local: IPv4Address
    inside_remote: IPv4Address
    inside_prefix: int
    remote_asn: int
    routing: Routing
    """Between sites BGP only where both speak it."""
    preference: int
    """The higher, the better (BGP's local preference)."""
    metric: int
    """The lower, the better: the MED that we advertise to the peer, and the distance of static routes."""
    handicap: int
    """Added to the MED that the peer advertises: decides between tunnels with the same MED."""
    accepts: tuple[IPv4Network, ...]
    """What may be reached through it: nothing else is accepted from the peer."""
    secret: str
    """The name of the secret that holds its pre-shared key."""


class SiteGateway(Struct, frozen=True):
    """The machine that joins a physical site to the rest: strongSwan and FRR run there."""

    site: str
    key: str
    node: str
    """Its host name."""
    fqdn: str
    address: IPv4Address
    """On the site's LAN; also its BGP router id."""
    lan: IPv4Network
    asn: int
    routing: Routing
    announces: tuple[IPv4Network, ...]
    """What it tells all peers that it can reach: the LAN."""
    nat: bool
    """Whether it takes the LAN to the internet, by its own address."""
    ssh_from: tuple[IPv4Network, ...]
    """Who may reach its port 22 over the internet."""
    in_overlay: bool
    """Whether it is a node of the pods' network."""
    tunnels: tuple[SiteTunnel, ...]
    """By name: AWS's and those to other sites."""
