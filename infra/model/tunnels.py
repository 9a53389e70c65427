"""The gateways of physical sites and their IPsec tunnels, each from the view of its gateway."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from msgspec import Struct

from infra.model.places import Routing


class SiteTunnel(Struct, frozen=True):
    """An IPsec tunnel from the view of a physical site's gateway."""

    name: str
    """Unique on the gateway; the name of swanctl's connection: ``us-west-2-1``, ``rack-b-1``."""
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
    """The id that connects the interface with its SAs: unique, like the inside block."""
    mtu: int
    """The MTU inside the tunnel, in bytes."""
    mss: int
    """Of TCP segments inside the tunnel, in bytes."""
    local: IPv4Address | None
    """The local public address; None behind NAT, where the gateway does not have it."""
    local_id: str
    """The local IKE identity: the public address."""
    remote: IPv4Address | None
    """The remote public address; None if AWS assigns it, see ``Outputs``."""
    encapsulated: bool
    """Whether ESP is always encapsulated in UDP (RFC 3948), for a gateway behind NAT."""
    initiates: bool
    """Whether this end initiates."""
    inside_local: IPv4Address
    inside_remote: IPv4Address
    inside_prefix: int
    remote_asn: int
    routing: Routing
    """Between sites, BGP only if both use it."""
    preference: int
    """BGP's local preference: higher is better."""
    metric: int
    """Lower is better: the MED advertised to the peer, and the distance of static routes."""
    leading_metric: int
    """The MED while the gateway has the site's virtual address; differs from ``metric`` only on a standby."""
    handicap: int
    """Added to the MED that the peer advertises; decides between tunnels with the same MED."""
    accepts: tuple[IPv4Network, ...]
    """The networks that may be reached through it: other routes from the peer are rejected."""
    secret: str
    """The name of the secret that holds its pre-shared key."""


class Failover(Struct, frozen=True):
    """What a gateway knows of its site's other gateway (VRRP, RFC 5798)."""

    virtual: IPv4Address
    """An address of the LAN that one of the two gateways has at a time: the router of the LAN's machines."""
    router_id: int
    """VRRP's number for it, 1 to 255."""
    preferred: bool
    """Whether this gateway has it while both work."""
    other: IPv4Address
    """The other one's address on the LAN."""


class SiteGateway(Struct, frozen=True):
    """A machine that connects a physical site to the others, with strongSwan and FRR."""

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
    """Networks that it announces to all peers: the LAN."""
    nat: bool
    """Whether it translates the LAN's addresses for the internet."""
    ssh_from: tuple[IPv4Network, ...]
    """Blocks that may connect to its port 22 over the internet."""
    in_overlay: bool
    """Whether it is a node of the pod network."""
    tunnels: tuple[SiteTunnel, ...]
    """Sorted by name: to AWS and to other sites."""
    failover: Failover | None = None
    """The other gateway, where the site has two."""

    @property
    def tree(self) -> str:
        """The folder of its files below ``strongswan``. Names of sites have no dots, so it is unique."""
        standby = self.failover is not None and not self.failover.preferred
        return f"{self.site}.standby" if standby else self.site
