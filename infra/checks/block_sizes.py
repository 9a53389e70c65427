"""Blocks that are too small for their contents (NET)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from typing import Final

from infra.catalogue.limits import VPC_PREFIXES
from infra.checks.facts import Facts, Group, Place, usable
from infra.checks.phrases import addresses, count, listed
from infra.checks.registry import Finding, check
from infra.errors import Level, Path
from infra.model.places import TIERS
from infra.schema.access import Wireguard
from infra.schema.defaults import DEVICES_PREFIX, SERVICES_PREFIX, listener_prefix, node_prefix

NODE_BITS: Final = 16
"""Kubernetes' maximum number of bits between the pod range and a node's block."""


@check("NET008", Level.WARNING, "A LAN has no address left for a router.")
def lan_full(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        hosts = max(site.cidr.num_addresses - 2, 0)
        if site.nodes and len(site.nodes) >= hosts:
            message = f"{site.cidr} has {addresses(hosts)} for {count(len(site.nodes), 'node')} and a router"
            yield Finding(("sites", name, "cidr"), message, "make the LAN larger")


def _subnet_sizes(place: Place) -> Iterator[int]:
    """The number of addresses of each subnet in the VPC."""
    vpc = place.site.cidr
    for zone in place.zones:
        for tier in TIERS:
            block, size = place.stated(zone, tier), place.subnet_size(tier, zone)
            if size and (block is None or vpc is None or block.subnet_of(vpc)):
                yield size


@check("NET014", Level.ERROR, "A VPC is too small for its subnets over all zones.", waivable=False)
def vpc_too_small(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        prefix = place.site.cidr.prefixlen if place.site.cidr is not None else place.site.prefix
        if prefix not in VPC_PREFIXES:
            continue
        sizes = list(_subnet_sizes(place))
        room = 1 << (32 - prefix)
        if sum(sizes) > room:
            path = place.at("cidr" if place.site.cidr is not None else "prefix")
            message = (
                f"a /{prefix} has {room:,} addresses; {count(len(sizes), 'subnet')} in "
                f"{count(len(place.zones), 'zone')} take {sum(sizes):,}"
            )
            yield Finding(path, message, "make the VPC larger, or its subnets smaller")


@check("NET017", Level.ERROR, "The pods' range is too small for all nodes, each with its block.")
def pods_too_small(facts: Facts) -> Iterator[Finding]:
    pods = facts.spec.kubernetes.pods
    prefix = pods.cidr.prefixlen if pods.cidr is not None else pods.prefix
    each = node_prefix(pods.pods_per_node)
    machines = sum(group.nodes for group in facts.groups) + len(facts.nodes)
    machines += int(facts.spec.kubernetes.control_plane.count) if facts.places else 0
    room = 1 << (each - prefix) if each >= prefix else 0
    if machines > room:
        path = ("kubernetes", "pods", "cidr" if pods.cidr is not None else "prefix")
        message = (
            f"a /{prefix} holds {count(room, 'block')} of /{each}, one for each node's "
            f"{pods.pods_per_node} pods; there may be {count(machines, 'node')}"
        )
        fit = each - (machines - 1).bit_length()
        yield Finding(path, message, f"a /{fit} would do")


@check(
    "NET034",
    Level.ERROR,
    "The pod range is larger than Kubernetes can divide into node blocks.",
    waivable=False,
)
def pods_too_large(facts: Facts) -> Iterator[Finding]:
    pods = facts.spec.kubernetes.pods
    prefix = pods.cidr.prefixlen if pods.cidr is not None else pods.prefix
    each = node_prefix(pods.pods_per_node)
    if each - prefix > NODE_BITS:
        path = ("kubernetes", "pods", "cidr" if pods.cidr is not None else "prefix")
        message = f"a /{prefix} in blocks of /{each}: Kubernetes takes at most {NODE_BITS} bits between them"
        yield Finding(path, message, f"a /{each - NODE_BITS} is the largest")


@check("NET018", Level.ERROR, "The services' range is too small, or larger than Kubernetes allows.")
def services_size(facts: Facts) -> Iterator[Finding]:
    block = facts.spec.kubernetes.services
    path = ("kubernetes", "services")
    if block is not None and block.prefixlen < 12:
        # kube-apiserver: at most 20 bits of host addresses
        yield Finding(path, f"{block} is larger than a /12, the most Kubernetes takes", "take a /16 or so")
    elif block is not None and block.prefixlen > 24:
        yield Finding(
            path, f"{block} holds {block.num_addresses - 2} services; the add-ons alone take dozens",
            "make it a /24 or larger; it can't grow later",
        )  # fmt: skip


def _addresses_each(group: Group) -> int:
    """The number of subnet addresses that one machine uses: one, or one per Elastic Fabric Adapter."""
    if not group.machines.pool.efa:
        return 1
    return max([1, *(typed.type.efa_interfaces for typed in group.machines.types)])


def _room(place: Place, zones: Iterable[str]) -> int:
    return sum(usable(place.subnet_size("private", zone)) for zone in zones)


def _demand(group: Group) -> int:
    return group.nodes * _addresses_each(group)


@check("NET027", Level.ERROR, "A pool may grow beyond what its private subnets hold.")
def pool_outgrows(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        room = _room(group.place, group.zones)
        if group.zones and _demand(group) > room:
            each = _addresses_each(group)
            taking = f", {each} addresses each," if each > 1 else ""
            message = (
                f"pool {group.machines.name} may grow to {count(group.nodes, 'node')}{taking} in "
                f"{group.place.name}, its private subnets hold {room:,}"
            )
            yield Finding(
                group.at("max"), message,
                "lower max, give it more zones, or a shorter subnets.private (AWS keeps five of each)",
            )  # fmt: skip


@check("NET028", Level.ERROR, "The pools of a region together may grow beyond what its private subnets hold.")
def pools_outgrow(facts: Facts) -> Iterator[Finding]:
    by_place: defaultdict[str, defaultdict[frozenset[str], list[Group]]]
    by_place = defaultdict(lambda: defaultdict(list))
    for group in facts.groups:
        if group.zones and _demand(group) <= _room(group.place, group.zones):
            by_place[group.place.name][frozenset(group.zones)].append(group)
    leading = facts.primary
    for name, by_zones in by_place.items():
        place = facts.places[name]
        masters = int(facts.spec.kubernetes.control_plane.count) if leading is place else 0
        for zones in sorted({*by_zones, frozenset(place.zones)}, key=lambda one: (len(one), sorted(one))):
            bound = [one for inner, many in by_zones.items() if inner <= zones for one in many]
            wanted = sum(map(_demand, bound)) + (masters if zones == set(place.zones) else 0)
            room = _room(place, zones)
            if len(bound) + masters > 1 and wanted > room:
                pools = listed(dict.fromkeys(one.machines.name for one in bound))
                with_masters = " with the masters" if masters and zones == set(place.zones) else ""
                yield Finding(
                    place.at("subnets", "private"),
                    f"the pools {pools}{with_masters} may take {wanted:,} addresses in "
                    f"{listed(sorted(zones))}, whose private subnets hold {room:,}",
                    "lower their max, or give the subnets a shorter prefix",
                )
                break


@check("NET029", Level.ERROR, "The supernet is too small for what is allocated from it.", waivable=False)
def supernet_too_small(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    pods, services = spec.kubernetes.pods, spec.kubernetes.services
    parts: list[tuple[IPv4Network | None, int]] = [
        (pods.cidr, pods.prefix),
        (services, SERVICES_PREFIX),
        *((place.site.cidr, place.site.prefix) for place in facts.places.values()),
        *((site.cidr, 32) for site in facts.physical_sites.values() if site.cidr.subnet_of(spec.supernet)),
    ]
    taken = [
        block.num_addresses if block is not None else 1 << (32 - prefix)
        for block, prefix in parts
        if block is None or block.subnet_of(spec.supernet)
    ]
    if sum(taken) > spec.supernet.num_addresses:
        yield Finding(
            ("supernet",),
            f"{spec.supernet} has {addresses(spec.supernet.num_addresses)}; sites, pods and services "
            f"take {sum(taken):,}",
            "widen it, or make the prefix of VPCs or pods longer",
        )


def _devices_too_many(written: Wireguard, users: int) -> Iterator[Finding]:
    prefix = written.clients.prefixlen if written.clients is not None else written.prefix
    # The servers' own addresses are a block of the same size as a user's.
    room = max((1 << max(DEVICES_PREFIX - prefix, 0)) - 1, 0)
    if users > room:
        field = "clients" if written.clients is not None else "prefix"
        have, want = count(room, "user"), count(users, "user")
        message = f"a /{prefix} has WireGuard addresses for {have}; {want} may connect"
        yield Finding(("access", "vpn", "wireguard", field), message, "each user has eight addresses of it")


@check("NET035", Level.ERROR, "The laptops' range is too small for the users of the VPN.", waivable=False)
def laptops_too_many(facts: Facts) -> Iterator[Finding]:
    vpn = facts.spec.access.vpn
    laptops = sum(user.vpn for user in facts.spec.access.users.values())
    if "wireguard" in vpn.kinds:
        yield from _devices_too_many(vpn.wireguard, laptops)
    if "openvpn" not in vpn.kinds:
        return
    prefix = vpn.clients.prefixlen if vpn.clients is not None else vpn.prefix
    # Each process of each server has its own part, of which it, the network and the broadcast address use one
    # each.
    room = max((1 << max(32 - listener_prefix(prefix), 0)) - 3, 0)
    if facts.vpn_sites and (not room or laptops > room):
        path: Path = ("access", "vpn", "clients" if vpn.clients is not None else "prefix")
        message = (
            f"of a /{prefix} each server has an eighth: {count(room, 'laptop')} by UDP and as many by TCP; "
            f"{count(laptops, 'user')} may connect"
        )
        yield Finding(path, message, "a laptop may come to any server, so each needs room for all")
