"""Explicit blocks and addresses that are invalid (NET)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from typing import Final, TypeAlias

from infra.catalogue.limits import VPC_PREFIXES
from infra.checks.facts import Facts, Place
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.model.places import TIERS

Stated: TypeAlias = tuple[Path, IPv4Network]

PRIVATE: Final = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
"""RFC 1918, and RFC 6598's shared space."""

_RESERVED: Final = tuple(
    (IPv4Network(block), why)
    for block, why in (
        ("0.0.0.0/8", "which means this host (RFC 1122)"),
        ("127.0.0.0/8", "every machine's own loopback (RFC 1122)"),
        ("169.254.0.0/16", "link-local, where AWS keeps its tunnels and metadata (RFC 3927)"),
        ("172.17.0.0/16", "the Docker bridge on every machine that has Docker"),
        ("192.0.0.0/24", "reserved by IANA (RFC 6890)"),
        ("192.0.2.0/24", "kept for documentation (RFC 5737)"),
        ("198.18.0.0/15", "kept for benchmarks (RFC 2544)"),
        ("198.51.100.0/24", "kept for documentation (RFC 5737)"),
        ("203.0.113.0/24", "kept for documentation (RFC 5737)"),
        ("224.0.0.0/4", "multicast (RFC 5771)"),
        ("240.0.0.0/4", "reserved for future use (RFC 1112)"),
    )
)

_HOME: Final = tuple(
    IPv4Network(f"{start}/24")
    for start in (
        "10.0.0.0", "10.0.1.0", "192.168.0.0", "192.168.1.0", "192.168.2.0", "192.168.8.0", "192.168.86.0",
        "192.168.100.0", "192.168.178.0",
    )
)  # fmt: skip
"""Default networks of home routers, where the laptop's local route takes precedence over the VPN's."""


LAPTOPS: Final = IPv4Network("100.64.0.0/10")
"""The range from which laptops' blocks are allocated (RFC 6598)."""

LARGEST_LAN: Final = 12
"""The shortest prefix that a physical site may have."""


def _site_blocks(facts: Facts) -> Iterator[Stated]:
    for name, site in facts.spec.sites.items():
        if site.cidr is not None:
            yield ("sites", name, "cidr"), site.cidr


def _cluster_blocks(facts: Facts) -> Iterator[Stated]:
    if facts.spec.kubernetes.pods.cidr is not None:
        yield ("kubernetes", "pods", "cidr"), facts.spec.kubernetes.pods.cidr
    if facts.spec.kubernetes.services is not None:
        yield ("kubernetes", "services"), facts.spec.kubernetes.services


def _laptop_blocks(facts: Facts) -> Iterator[Stated]:
    if facts.spec.access.vpn.clients is not None:
        yield ("access", "vpn", "clients"), facts.spec.access.vpn.clients
    if facts.spec.access.vpn.wireguard.clients is not None:
        yield ("access", "vpn", "wireguard", "clients"), facts.spec.access.vpn.wireguard.clients


def stated_blocks(facts: Facts) -> tuple[Stated, ...]:
    """The stated blocks of sites, pods, services and laptops."""
    return (*_site_blocks(facts), *_cluster_blocks(facts), *_laptop_blocks(facts))


def _subnets(place: Place) -> Iterator[Stated]:
    for zone in place.site.explicit_subnets:
        for tier in TIERS:
            block = place.stated(zone, tier)
            if block is not None:
                yield place.at("explicit_subnets", zone, tier), block


def _clashes(stated: Iterable[Stated], hint: str) -> Iterator[Finding]:
    """Overlaps, found in one pass in address order: two blocks are disjoint or one contains the other."""
    outer: Stated | None = None
    last = -1
    for path, block in sorted(
        stated, key=lambda one: (int(one[1].network_address), one[1].prefixlen, one[0])
    ):
        if outer is not None and int(block.network_address) <= last:
            yield Finding(path, f"{block} overlaps {outer[1]} of {dotted(outer[0])}", hint)
        else:
            outer, last = (path, block), int(block.broadcast_address)


def _within(block: IPv4Network, ranges: Iterable[IPv4Network]) -> bool:
    return any(block.subnet_of(one) for one in ranges)


@check(
    "NET001", Level.ERROR, "Two explicit blocks of sites, pods, services or laptops overlap.", waivable=False
)
def blocks_overlap(facts: Facts) -> Iterator[Finding]:
    yield from _clashes(
        stated_blocks(facts), "take a block that is free, or leave it out to have one allocated"
    )


@check("NET002", Level.ERROR, "Two explicit subnets of a VPC overlap.", waivable=False)
def subnets_overlap(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        yield from _clashes(_subnets(place), "take another part of the VPC, or leave it out")


@check("NET003", Level.ERROR, "An explicit subnet is outside its VPC.", waivable=False)
def subnet_outside(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        vpc = place.site.cidr
        for path, block in _subnets(place):
            if vpc is not None and not block.subnet_of(vpc):
                yield Finding(path, f"{block} lies outside the VPC's {vpc}", f"take a part of {vpc}")


@check(
    "NET004",
    Level.ERROR,
    "A VPC or subnet is larger than /16 or smaller than /28, which AWS refuses.",
    waivable=False,
)
def aws_sizes(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        stated = list(_subnets(place))
        if place.site.cidr is not None:
            stated.append((place.at("cidr"), place.site.cidr))
        for path, block in stated:
            if block.prefixlen not in VPC_PREFIXES:
                message = f"{block} is a /{block.prefixlen}; AWS takes /16 to /28"
                yield Finding(path, message, _resized(block))


def _resized(block: IPv4Network) -> str:
    """The nearest block that AWS accepts."""
    largest, smallest = VPC_PREFIXES[0], VPC_PREFIXES[-1]
    if block.prefixlen < largest:
        return f"take a part of it, such as {next(block.subnets(new_prefix=largest))}"
    return f"{block.supernet(new_prefix=smallest)} is the smallest"


@check(
    "NET005", Level.ERROR, "A physical node's address lies outside its site's LAN, or is not a host address."
)
def node_address(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        first, last = int(site.cidr.network_address), int(site.cidr.broadcast_address)
        for host, node in site.nodes.items():
            path = ("sites", name, "nodes", host, "address")
            number = int(node.address)
            if not first <= number <= last:
                message = f"{node.address} lies outside the LAN {site.cidr}"
                yield Finding(path, message, "correct the address, or the site's cidr")
            elif number in (first, last) and site.cidr.prefixlen < 31:
                kind = "the network's own" if number == first else "the broadcast"
                message = f"{node.address} is {kind} address of {site.cidr}"
                yield Finding(path, message, "give it another")


@check("NET006", Level.ERROR, "Two physical nodes have the same address.")
def node_addresses_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[int, Path] = {}
    for node in facts.nodes:
        address, path = node.node.address, node.at()
        first = seen.setdefault(int(address), path)
        if first is not path:
            message = f"{address} is the address of {dotted(first)} already"
            yield Finding(node.at("address"), message, "give each its own")


@check("NET007", Level.ERROR, "Subnets are set, but not the block of their VPC.", waivable=False)
def subnet_without_vpc(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        if place.site.cidr is None and any(_subnets(place)):
            message = "subnets are stated, but not the VPC's block that they lie in"
            yield Finding(place.at("explicit_subnets"), message, f"state {dotted(place.at('cidr'))} too")


@check("NET009", Level.WARNING, "A VPC, or the range of pods or services, is outside the supernet.")
def outside_supernet(facts: Facts) -> Iterator[Finding]:
    vpcs = ((path, block) for path, block in _site_blocks(facts) if path[1] in facts.places)
    for path, block in (*vpcs, *_cluster_blocks(facts)):
        if _sound(block) and not block.subnet_of(facts.spec.supernet):
            yield Finding(
                path, f"{block} lies outside the supernet {facts.spec.supernet}",
                "leave it out to have one allocated, or widen the supernet",
            )  # fmt: skip


def _sound(block: IPv4Network) -> bool:
    """Whether the whole block is private and not reserved."""
    return _within(block, PRIVATE) and not any(block.overlaps(taken) for taken, _ in _RESERVED)


def _all_blocks(facts: Facts) -> Iterator[Stated]:
    if "supernet" in facts.spec.model_fields_set:
        yield ("supernet",), facts.spec.supernet
    yield from _site_blocks(facts)
    yield from _cluster_blocks(facts)
    yield from _laptop_blocks(facts)


@check(
    "NET010",
    Level.ERROR,
    "An explicit block overlaps a reserved range: loopback, the Docker bridge, multicast …",
)
def reserved_range(facts: Facts) -> Iterator[Finding]:
    for path, block in _all_blocks(facts):
        for taken, why in _RESERVED:
            # A supernet may contain the Docker bridge's range: the allocator avoids it.
            if block.subnet_of(taken) or (path != ("supernet",) and taken.subnet_of(block)):
                yield Finding(path, f"{block} touches {taken}, {why}", "take a part of 10.0.0.0/8")
                break


@check("NET011", Level.ERROR, "An explicit block is public: its owners' hosts could no longer be reached.")
def public_range(facts: Facts) -> Iterator[Finding]:
    for path, block in _all_blocks(facts):
        if not _within(block, PRIVATE) and not any(block.overlaps(taken) for taken, _ in _RESERVED):
            yield Finding(
                path, f"{block} is not a private range",
                "take a part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10",
            )  # fmt: skip


def _home(block: IPv4Network) -> IPv4Network | None:
    return next((one for one in _HOME if one.overlaps(block)), None)


@check("NET012", Level.WARNING, "The laptops' range is one that home routers use too.")
def laptops_at_home(facts: Facts) -> Iterator[Finding]:
    for path, block in _laptop_blocks(facts):
        home = _home(block)
        if home is not None:
            message = f"{block} touches {home}, which home routers give out"
            yield Finding(path, message, "leave it out: a block of 100.64.0.0/10 is allocated")


@check("NET013", Level.WARNING, "A site's block holds a range that home routers use too.")
def sites_at_home(facts: Facts) -> Iterator[Finding]:
    for path, block in _site_blocks(facts):
        home = _home(block)
        if home is not None and block.prefixlen >= LARGEST_LAN:
            message = f"{block} touches {home}: laptops behind a home router that uses it can't reach it"
            yield Finding(path, message, "move it, or waive this where nobody connects from home")


@check("NET019", Level.ERROR, "A site's LAN is larger than a /12, which cannot be right.")
def lan_size(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        if site.cidr.prefixlen < LARGEST_LAN and _within(site.cidr, PRIVATE):
            yield Finding(
                ("sites", name, "cidr"), f"{site.cidr} leaves the other sites no room",
                "state the LAN's own block, not the whole private range",
            )  # fmt: skip
