"""Tunnels, gateways and their routing: values that AWS or BGP do not accept (NET)."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from infra.catalogue import quotas
from infra.checks.facts import Facts, Place
from infra.checks.phrases import count
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.schema import defaults
from infra.schema.sites import Gateway, Routing

_LINK_LOCAL: Final = IPv4Network("169.254.0.0/16")

_LINKS_TAKEN: Final = tuple(
    IPv4Network(block) for block in (*(f"169.254.{third}.0/30" for third in range(6)), "169.254.169.252/30")
)
"""Inside blocks that AWS reserves (Site-to-Site VPN User Guide, "Tunnel options")."""

_NEVER_PUBLIC: Final = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.168.0.0/16", "224.0.0.0/3",
    )
)  # fmt: skip
"""RFC 6890. Documentation blocks are accepted, as examples use them."""

_AWS_ASNS: Final = {7224: None, 9059: "eu-west-1", 10124: "ap-northeast-1", 17493: "ap-southeast-1"}
"""Amazon's own AS numbers, not allowed for a customer gateway: in every region, or in one (Site-to-Site VPN
User Guide, "Customer gateway options")."""

_RESERVED_ASNS: Final = {23456: "AS_TRANS (RFC 6793)", 65535: "reserved (RFC 7300)"}

_LEAVE_OUT: Final = "leave it out: one is allocated"

_VPN_CONNECTIONS: Final = {
    "peering": ("vpn-connections-per-gateway", "a virtual private gateway has"),
    "transit-gateway": ("vpn-connections", "an account has in a region"),
}
"""How regions are connected → the quota of VPN connections, and the gateway it applies to."""


@check(
    "NET015", Level.ERROR, "The tunnels' block is not within 169.254.0.0/16, as AWS requires.", waivable=False
)
def links_range(facts: Facts) -> Iterator[Finding]:
    links = facts.spec.network.links
    if not links.subnet_of(_LINK_LOCAL):
        message = f"{links} is not within {_LINK_LOCAL}, where AWS wants tunnels' inside addresses"
        yield Finding(("network", "links"), message, "leave it out: all of it is used by default")


@check("NET016", Level.ERROR, "The tunnels' block is too small for all VPN connections.", waivable=False)
def links_too_small(facts: Facts) -> Iterator[Finding]:
    links = facts.spec.network.links
    if not links.subnet_of(_LINK_LOCAL):
        return
    needed = 2 * sum(_connections(facts, place) for place in facts.places.values())
    needed += sum(pairs for _, _, pairs in defaults.mesh_pairs(facts.spec))
    room = links.num_addresses // 4 - sum(taken.subnet_of(links) for taken in _LINKS_TAKEN)
    if needed > room:
        message = f"{links} has room for {count(room, 'tunnel')}; VPN connections and sites have {needed:,}"
        yield Finding(("network", "links"), message, "each takes a /30; AWS keeps seven for itself")


def _connections(facts: Facts, place: Place) -> int:
    """The number of VPN connections of an AWS site: one per public address of each linked site."""
    return sum(len(site.gateway.addresses) for _, site in facts.linked(place) if site.gateway is not None)


def _speakers(facts: Facts) -> Iterator[tuple[str, Gateway]]:
    """Gateways with a BGP session to some region."""
    for name, site in facts.physical_sites.items():
        gateway = site.gateway
        if gateway is not None and _routing(facts, gateway) is Routing.BGP:
            yield name, gateway


@check("NET020", Level.ERROR, "Two gateways have the same BGP autonomous system number.", waivable=False)
def asn_twice(facts: Facts) -> Iterator[Finding]:
    asns: list[tuple[Path, int]] = [
        (place.at("asn"), place.site.asn) for place in facts.places.values() if place.site.asn is not None
    ]
    asns += [
        (("sites", name, "gateway", "asn"), gateway.asn)
        for name, gateway in _speakers(facts)
        if gateway.asn is not None
    ]
    seen: dict[int, Path] = {}
    for path, asn in asns:
        first = seen.setdefault(asn, path)
        if first is not path:
            message = f"AS {asn} is {dotted(first)} already: routes of the one are loops to the other"
            yield Finding(path, message, "give each its own, 64512 to 65534")


@check("NET021", Level.ERROR, "A site's autonomous system number is reserved, or Amazon's own.")
def asn_reserved(facts: Facts) -> Iterator[Finding]:
    for name, gateway in _speakers(facts):
        path = ("sites", name, "gateway", "asn")
        if gateway.asn in _RESERVED_ASNS:
            yield Finding(path, f"AS {gateway.asn} is {_RESERVED_ASNS[gateway.asn]}", _LEAVE_OUT)
        elif gateway.asn in _AWS_ASNS:
            region = _AWS_ASNS[gateway.asn]
            if region is None or any(place.region == region for place in facts.places.values()):
                where = f" in {region}" if region else ""
                yield Finding(path, f"AS {gateway.asn} is Amazon's own{where}", _LEAVE_OUT)


@check("NET022", Level.ERROR, "A region's autonomous system number is not private, as AWS requires.")
def asn_private(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        asn = place.site.asn
        if asn is not None and not _private(asn):
            message = f"AS {asn} is not private; AWS takes 64512 to 65534 and 4200000000 to 4294967294"
            yield Finding(place.at("asn"), message, _LEAVE_OUT)


@check("NET023", Level.WARNING, "More VPN connections to a region than AWS allows by default.")
def vpn_connections(facts: Facts) -> Iterator[Finding]:
    name, whose = _VPN_CONNECTIONS[defaults.interconnect(facts.spec)]
    quota = quotas.known(name)
    for place in facts.places.values():
        wanted = _connections(facts, place)
        if wanted > quota.default and not too_many_propagated(facts, place):
            yield Finding(
                place.at("vpn"),
                f"{wanted} VPN connections; {whose} {quota.default} unless AWS raises it",
                f"name fewer sites in vpn, or ask AWS for more (quota {quota.code})",
            )


PROPAGATED: Final = 100
"""Maximum routes that a route table learns from a virtual private gateway; AWS does not increase it (VPC
User Guide, "Amazon VPC quotas", BGP advertised routes per route table). One customer gateway may announce
as many (Site-to-Site VPN User Guide, "Quotas"); ours announces one."""


def too_many_propagated(facts: Facts, place: Place) -> int:
    """The number of routes that a region's tables learn if it exceeds the maximum, else 0. A gateway
    announces only its site's LAN."""
    if defaults.interconnect(facts.spec) != "peering":
        return 0
    routes = sum(1 for _ in facts.linked(place))
    return routes if routes > PROPAGATED else 0


@check(
    "QUOTA008",
    Level.ERROR,
    "A VPC's route tables would learn more routes over VPN than AWS takes.",
    waivable=False,
)
def propagated_routes(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        routes = too_many_propagated(facts, place)
        if routes:
            message = (
                f"route tables of {place.name} would learn the LANs of {routes} sites; AWS takes "
                f"{PROPAGATED} (BGP advertised routes per route table), and does not raise it"
            )
            yield Finding(
                place.at("vpn"), message, "'network.interconnect: transit-gateway', or fewer in vpn"
            )


@check("NET024", Level.WARNING, "More peerings of a VPC than AWS allows by default.")
def peerings(facts: Facts) -> Iterator[Finding]:
    each, quota = len(facts.places) - 1, quotas.known("peerings-per-vpc")
    if defaults.interconnect(facts.spec) == "peering" and each > quota.default:
        message = f"each VPC has {each} peerings; AWS allows {quota.default} unless it raises that"
        yield Finding(("network", "interconnect"), message, f"take transit-gateway, or raise {quota.code}")


def _gateway_addresses(facts: Facts) -> Iterator[tuple[Path, IPv4Address, Gateway]]:
    for name, site in facts.physical_sites.items():
        if site.gateway is not None:
            for index, address in enumerate(site.gateway.addresses):
                yield ("sites", name, "gateway", "addresses", index), address, site.gateway


@check("NET025", Level.ERROR, "A gateway's public address is invalid.")
def gateway_private(facts: Facts) -> Iterator[Finding]:
    for path, address, gateway in _gateway_addresses(facts):
        if any(address in block for block in _NEVER_PUBLIC):
            hint = "give the address that the site shows to the internet"
            if not gateway.behind_nat:
                hint += "; behind NAT, the NAT device's with behind_nat: true"
            yield Finding(path, f"{address} is not a public address: AWS can't reach it", hint)


@check("NET026", Level.ERROR, "Two gateways have the same public address.")
def gateway_addresses_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[IPv4Address, Path] = {}
    for path, address, _ in _gateway_addresses(facts):
        first = seen.setdefault(address, path)
        if first is not path:
            message = f"{address} is {dotted(first)} already"
            yield Finding(path, message, "each VPN connection needs an address of its own")


@check("NET038", Level.WARNING, "Two sites are both behind NAT, so neither can reach the other.")
def both_behind_nat(facts: Facts) -> Iterator[Finding]:
    hidden = {
        name
        for name, site in facts.physical_sites.items()
        if site.gateway is not None and site.gateway.behind_nat
    }
    for first, second, _ in defaults.mesh_pairs(facts.spec):
        if {first, second} <= hidden:
            message = f"{first} is behind NAT too: neither can call the other"
            hint = f"forward UDP 500 and 4500 to the gateway of {first} or {second}, and waive this"
            yield Finding(("sites", second, "gateway", "behind_nat"), message, hint)


@check("NET040", Level.WARNING, "A site with static routes does not follow another site's standby gateway.")
def static_to_standby(facts: Facts) -> Iterator[Finding]:
    for pair in defaults.mesh_pairs(facts.spec):
        for name, other in (pair[:2], pair[1::-1]):
            gateway, peer = (facts.physical_sites[each].gateway for each in (name, other))
            if gateway is None or gateway.standby is None or peer is None:
                continue
            if _routing(facts, gateway) is Routing.BGP and _routing(facts, peer) is Routing.STATIC:
                path: Path = ("sites", name, "gateway", "standby")
                message = f"{other} has static routes, and uses both gateways, whichever is in charge"
                yield Finding(path, message, f"say 'routing: bgp' at {other}")


@check("NET036", Level.WARNING, "A site's autonomous system number is not private.")
def asn_public(facts: Facts) -> Iterator[Finding]:
    for name, gateway in _speakers(facts):
        taken = gateway.asn in _AWS_ASNS or gateway.asn in _RESERVED_ASNS
        if gateway.asn is not None and not taken and not _private(gateway.asn):
            message = f"AS {gateway.asn} is a public number: right only if it is yours"
            yield Finding(("sites", name, "gateway", "asn"), message, "take one of 64512 to 65534")


@check("NET037", Level.WARNING, "An autonomous system number where all routes are static has no effect.")
def asn_unused(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        gateway = site.gateway
        if gateway is not None and gateway.asn is not None and _routing(facts, gateway) is Routing.STATIC:
            message = f"{name} has static routes: nothing there speaks BGP"
            yield Finding(("sites", name, "gateway", "asn"), message, "take it out, or say 'routing: bgp'")


@check("NET039", Level.WARNING, "With static routes a transit gateway uses one public address of a site.")
def idle_addresses(facts: Facts) -> Iterator[Finding]:
    if defaults.interconnect(facts.spec) == "peering":
        return
    for name, site in facts.physical_sites.items():
        gateway = site.gateway
        if gateway is None or _routing(facts, gateway) is Routing.BGP or len(gateway.addresses) == 1:
            continue
        if any(name == linked for place in facts.places.values() for linked, _ in facts.linked(place)):
            path = ("sites", name, "gateway", "addresses", 1)
            message = f"a transit gateway has one static route to {site.cidr}: over {gateway.addresses[0]}"
            yield Finding(path, message, "say 'routing: bgp', or name one address")


def _routing(facts: Facts, gateway: Gateway) -> Routing:
    return gateway.routing or facts.spec.network.routing


def _private(asn: int) -> bool:
    """Whether the AS number is private (RFC 6996)."""
    return 64512 <= asn <= 65534 or 4200000000 <= asn <= 4294967294
