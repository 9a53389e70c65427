"""The gateways of physical sites and their tunnels, to AWS and to each other, with the settings of both
ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from infra.catalogue import packets
from infra.catalogue.roles import makes_node
from infra.model.ipsec import Ipsec
from infra.model.names import aws_name, link_name, tunnel_secret
from infra.model.places import Gateway, Link, PhysicalNode, PhysicalSite, Routing
from infra.model.tunnels import Failover, SiteGateway, SiteTunnel
from infra.resolve.addresses import tunnel_owner
from infra.resolve.transit import connected
from infra.schema import Spec
from infra.schema import sites as written
from infra.schema.defaults import interconnect, mesh_pairs
from infra.schema.lines import aws_tunnel, encapsulated, site_tunnel

_INTERFACE: Final = 15
"""Maximum length of an interface name in Linux: IFNAMSIZ, less the terminating byte."""

_STEP: Final = 10
"""The distance between preferences of tunnels: room for values set by hand."""

_BEST: Final = 200

_PREFERRED_MED: Final = 100
_STANDBY_MED: Final = 200
"""Added to the MEDs of a site's two gateways; a standby in charge adds nothing. So peers prefer it as soon as
it takes over, even while they still have the routes of the gateway that failed."""


class _Rank(NamedTuple):
    """The preference among tunnels to the same block."""

    preference: int
    metric: int
    handicap: int = 0


def resolve_gateways(
    spec: Spec,
    sites: Sequence[PhysicalSite],
    links: Sequence[Link],
    blocks: Mapping[str, IPv4Network],
) -> tuple[SiteGateway, ...]:
    """The gateways of each physical site: the preferred one, then the standby."""
    joined = [
        (site, site.gateway, node)
        for site in sites
        if site.gateway is not None
        for name in site.gateway.nodes
        for node in site.nodes
        if node.name == name
    ]
    return tuple(
        SiteGateway(
            site=site.name,
            key=site.key,
            node=node.name,
            fqdn=node.fqdn,
            address=node.address,
            lan=site.lan,
            asn=gateway.asn,
            routing=gateway.routing,
            announces=(site.lan,),
            nat=_nat(spec, site.name, node),
            ssh_from=gateway.ssh_from,
            in_overlay=makes_node(node.roles),
            tunnels=tuple(
                sorted(
                    [
                        *_to_aws(spec, site, gateway, node, links),
                        *_to_sites(spec, site, gateway, node, sites, blocks),
                    ],
                    key=lambda tunnel: tunnel.name,
                )
            ),
            failover=_failover(site, gateway, node),
        )
        for site, gateway, node in joined
    )


def _failover(site: PhysicalSite, gateway: Gateway, node: PhysicalNode) -> Failover | None:
    """The virtual router ID is the last byte of the virtual address. As the two gateways use unicast, other
    routers of the LAN may have the same ID."""
    others = [each for each in site.nodes if each.name in gateway.nodes and each.name != node.name]
    if gateway.virtual is None or not others:
        return None
    number = int(gateway.virtual) & 0xFF
    return Failover(gateway.virtual, number or 255, node.name == gateway.node, others[0].address)


def _written(spec: Spec, name: str) -> written.PhysicalSite:
    site = spec.sites[name]
    assert isinstance(site, written.PhysicalSite)
    return site


def _nat(spec: Spec, name: str, node: PhysicalNode) -> bool:
    """Whether the gateway translates addresses: as stated; else whether it is the LAN's router."""
    site = _written(spec, name)
    assert site.gateway is not None
    if site.gateway.nat is not None:
        return site.gateway.nat
    return site.router in (None, node.address, site.gateway.virtual_address)


def _to_aws(
    spec: Spec, site: PhysicalSite, gateway: Gateway, node: PhysicalNode, links: Sequence[Link]
) -> Iterator[SiteTunnel]:
    joined, own = connected(spec), _written(spec, site.name)
    here = gateway.addresses_of(node.name)
    for link in links:
        if link.site != site.name or link.address not in here:
            continue
        connection = gateway.addresses.index(link.address)
        for tunnel in link.tunnels:
            order = 2 * connection + tunnel.number
            rank = _in_order(order, connection=connection, handicap=tunnel.number - 1)
            if interconnect(spec) == "transit-gateway":
                rank = _on_transit(order, gateway.routing, first=joined[link.site][0] == link.aws_site)
            yield _tunnel(
                gateway,
                node,
                link=link.name,
                number=tunnel.number,
                order=order,
                rank=rank,
                peer=link.aws_site,
                address=link.address,
                remote=None,
                mtu=aws_tunnel(spec, own),
                encapsulated=encapsulated(own),
                inside=tunnel.inside,
                inside_local=tunnel.site_inside,
                remote_asn=link.aws_asn,
                routing=gateway.routing,
                accepts=link.aws_blocks,
            )


def _in_order(order: int, *, connection: int, handicap: int = 0) -> _Rank:
    """Tunnels in order of preference: a virtual private gateway uses one at a time. Between the two tunnels
    of a connection AWS selects by MED, which local preference would override (Site-to-Site VPN User
    Guide, "Tunnel endpoint updates")."""
    return _Rank(_BEST - _STEP * connection, _STEP * order, handicap)


def _between_sites(number: int, *, two: bool) -> _Rank:
    """If an end has two gateways, all tunnels have the same rank, so that the MED of the one in charge
    decides: BGP compares local preference first."""
    return _in_order(1, connection=0) if two else _in_order(number, connection=number - 1)


def _on_transit(order: int, routing: Routing, *, first: bool) -> _Rank:
    """Tunnels to a transit gateway: with BGP all at once (ECMP); static routes have distinct metrics. To a
    region with a connection of its own, the path through the site's first region is second."""
    if routing == "bgp":
        return _Rank(_BEST if first else _BEST + _STEP, _STEP)
    return _Rank(_BEST - _STEP * (order - 1), _STEP * order if first else order)


def _to_sites(
    spec: Spec,
    site: PhysicalSite,
    gateway: Gateway,
    node: PhysicalNode,
    sites: Sequence[PhysicalSite],
    blocks: Mapping[str, IPv4Network],
) -> Iterator[SiteTunnel]:
    here = gateway.addresses_of(node.name)
    by_name = {each.name: each for each in sites}
    for first, second, count in mesh_pairs(spec):
        if site.name not in (first, second):
            continue
        peer = by_name[second if site.name == first else first]
        assert peer.gateway is not None
        ends = _written(spec, first), _written(spec, second)
        for number in range(1, count + 1):
            address = gateway.addresses[(number - 1) % len(gateway.addresses)]
            if address not in here:
                continue
            link = link_name(first, second, number)
            inside = blocks[tunnel_owner(link, 1)]
            yield _tunnel(
                gateway,
                node,
                link=link,
                number=1,
                order=number,
                rank=_between_sites(number, two=bool(gateway.standby or peer.gateway.standby)),
                peer=peer.name,
                address=address,
                remote=peer.gateway.addresses[(number - 1) % len(peer.gateway.addresses)],
                mtu=site_tunnel(spec, *ends),
                encapsulated=encapsulated(*ends),
                inside=inside,
                inside_local=inside[1] if site.name == first else inside[2],
                remote_asn=peer.gateway.asn,
                routing="bgp" if gateway.routing == peer.gateway.routing == "bgp" else "static",
                accepts=(peer.lan,),
                # An end behind NAT cannot be reached, so it initiates; otherwise the first by name does.
                initiates=gateway.behind_nat or (not peer.gateway.behind_nat and site.name == first),
            )


def _tunnel(
    gateway: Gateway,
    node: PhysicalNode,
    *,
    link: str,
    number: int,
    order: int,
    rank: _Rank,
    peer: str,
    address: IPv4Address,
    remote: IPv4Address | None,
    mtu: int,
    encapsulated: bool,
    inside: IPv4Network,
    inside_local: IPv4Address,
    remote_asn: int,
    routing: Routing,
    accepts: tuple[IPv4Network, ...],
    initiates: bool = True,
) -> SiteTunnel:
    standby = node.name == gateway.standby
    med = (_STANDBY_MED if standby else _PREFERRED_MED) if gateway.standby else 0
    return SiteTunnel(
        name=f"{peer}-{order}",
        link=link,
        number=number,
        kind="aws" if remote is None else "site",
        peer=peer,
        interface=aws_name(_INTERFACE, f"t{order}", peer),
        # The inside block is unique and permanent, so its last two bytes number the interface.
        if_id=int(inside.network_address) & 0xFFFF,
        mtu=mtu,
        mss=packets.mss(mtu),
        local=None if gateway.behind_nat else address,
        local_id=str(address),
        remote=remote,
        encapsulated=encapsulated,
        initiates=initiates,
        inside_local=inside_local,
        inside_remote=inside[2] if inside_local == inside[1] else inside[1],
        inside_prefix=inside.prefixlen,
        remote_asn=remote_asn,
        routing=routing,
        preference=rank.preference,
        metric=rank.metric + med,
        leading_metric=rank.metric if standby else rank.metric + med,
        handicap=rank.handicap,
        accepts=accepts,
        secret=tunnel_secret(link, number),
    )


_CURVES = {19: ("prfsha256", "ecp256"), 20: ("prfsha384", "ecp384"), 21: ("prfsha512", "ecp521")}
"""Diffie-Hellman groups, by number → swanctl's pseudo-random function of the same strength, and the group."""

_BEST_FIRST = (20, 21, 19)


def resolve_ipsec(hold: int) -> Ipsec:
    """The IPsec policy; ``hold`` is BGP's hold time in seconds.

    AES-256-GCM only: it needs no separate integrity algorithm, is the fastest on current processors, and a
    single cipher gives a single MTU. Groups 19 to 21 are accepted by both AWS and NIST SP 800-77r1, CNSA's
    group 20 first. The gateway rekeys first, at two thirds of phase 2 and half of phase 1: AWS begins 540 to
    1,080 s before the end (margin and fuzz), and if both ends rekey at once, a redundant SA remains.
    """
    return Ipsec(
        encryption=("AES256-GCM-16",),
        integrity=("SHA2-256", "SHA2-384", "SHA2-512"),
        dh_groups=tuple(sorted(_CURVES)),
        phase1_lifetime=28800,
        phase2_lifetime=3600,
        rekey_margin=540,
        rekey_fuzz_percent=100,
        dpd_timeout=30,
        replay_window=1024,
        ike_proposals=tuple(f"aes256gcm16-{'-'.join(_CURVES[group])}" for group in _BEST_FIRST),
        esp_proposals=tuple(f"aes256gcm16-{_CURVES[group][1]}" for group in _BEST_FIRST),
        ike_rekey=14400,
        ike_rand=1440,
        esp_rekey=2400,
        esp_rand=240,
        esp_life=3600,
        dpd_delay=10,
        hold=hold,
        keepalive=max(1, hold // 3),
    )
