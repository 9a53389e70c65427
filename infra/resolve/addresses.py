"""Spec + lock → the address plan: the block of every site, VPC, subnet, range and tunnel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from typing import Final

from infra.errors import Problem, SpecError, dotted
from infra.model.names import link_name, subnet_name
from infra.model.places import TIERS
from infra.resolve.allocate_blocks import Plan, allocate
from infra.resolve.claims import ANYWHERE, DoesNotFit, Failure, HeldMismatch, Overlap, Request, Root
from infra.resolve.lockfile import Lock
from infra.schema import Spec
from infra.schema.defaults import (
    DEVICES_PREFIX,
    SERVICES_PREFIX,
    linked_sites,
    mesh_pairs,
    primary_of,
    server_prefix,
    vpn_sites,
    zones_of,
)
from infra.schema.sites import AwsSite, PhysicalSite

SUPERNET: Final = "supernet"
LAPTOPS: Final = "laptops"
LINKS: Final = "links"

_CGNAT: Final = IPv4Network("100.64.0.0/10")
"""RFC 6598: used by carriers, not by home routers, so it does not conflict with a laptop's LAN."""

_TAKEN_ELSEWHERE: Final = (
    (IPv4Network("10.0.0.0/23"), "home routers"),
    (IPv4Network("192.168.0.0/23"), "home routers"),
    (IPv4Network("172.17.0.0/16"), "the Docker bridge"),
)
"""Blocks that are common on laptops' LANs: a laptop's local route takes precedence over the VPN's."""

_TAKEN_BY_AWS: Final = tuple(
    (IPv4Network(block), "AWS keeps it for itself")
    for block in (
        *(f"169.254.{third}.0/30" for third in range(6)),
        "169.254.169.252/30",
    )
)
"""Inside blocks that a VPN connection can't have (AWS Site-to-Site VPN User Guide, "Tunnel options")."""


def tunnel_owner(link: str, number: int) -> str:
    """The owner of the addresses inside a tunnel."""
    return f"{LINKS}/{link}/{number}"


def clients_key(site: str) -> str:
    """The owner of the block from which one VPN server assigns addresses to laptops."""
    return f"access/clients/{site}"


WIREGUARD: Final = "access/wireguard"
"""The owner of the range of WireGuard devices."""

WIREGUARD_SERVERS: Final = f"{WIREGUARD}/0-servers"
"""The owner of the servers' own addresses in that range. A login cannot have this name."""


def devices_key(login: str) -> str:
    """The owner of the addresses of a user's WireGuard devices."""
    return f"{WIREGUARD}/{login}"


def plan_addresses(spec: Spec, lock: Lock) -> Plan:
    """The plan of all blocks. Blocks in the lock are kept; the others are allocated.

    Raises ``SpecError`` with every block that does not fit (NET030 to NET033). The caller adds positions, as
    it knows the file.
    """
    requests = tuple(_requests(spec))
    chosen = [request.block for request in requests if request.block is not None]
    plan = allocate(_roots(spec, [*chosen, *lock.blocks.values()]), requests, lock.blocks)
    if plan.failures:
        raise SpecError(_problem(failure) for failure in plan.failures)
    return plan


def _problem(failure: Failure) -> Problem:
    match failure:
        case Overlap():
            code = "NET030"
        case DoesNotFit():
            code = "NET031"
        case HeldMismatch():
            code = "NET032"
        case _:
            code = "NET033"
    return Problem(code, failure.path, str(failure), hint=failure.hint)


def _roots(spec: Spec, chosen: Iterable[IPv4Network]) -> Iterator[Root]:
    """The ranges that blocks are allocated from. Ranges common on laptops' LANs are reserved, except where a
    block of ``chosen`` (stated by the user; a check warns) lies in them."""
    taken = tuple(
        (piece, why)
        for block, why in _inside(spec.supernet, _TAKEN_ELSEWHERE)
        for piece in _without(block, chosen)
    )
    yield Root(SUPERNET, spec.supernet, taken, path="supernet")
    if not _CGNAT.overlaps(spec.supernet):
        yield Root(LAPTOPS, _CGNAT)
    yield Root(LINKS, spec.network.links, _inside(spec.network.links, _TAKEN_BY_AWS), path="network.links")


def _without(block: IPv4Network, others: Iterable[IPv4Network]) -> list[IPv4Network]:
    """The parts of ``block`` outside of ``others``, as blocks."""
    left = [block]
    for other in others:
        if other.overlaps(block):
            left = [
                piece
                for part in left
                for piece in (
                    [part]
                    if not part.overlaps(other)
                    else part.address_exclude(other)
                    if other.subnet_of(part)
                    else []
                )
            ]
    return sorted(left)


def _inside(
    block: IPv4Network, taken: tuple[tuple[IPv4Network, str], ...]
) -> tuple[tuple[IPv4Network, str], ...]:
    return tuple((network, why) for network, why in taken if network.subnet_of(block))


def _requests(spec: Spec) -> Iterator[Request]:
    for name, site in spec.sites.items():
        owner = f"sites/{name}"
        path = dotted(("sites", name, "cidr"))
        if isinstance(site, PhysicalSite):
            yield Request(owner, ANYWHERE, block=site.cidr, path=path, keep=False)
        else:
            yield _request(spec, owner, site.cidr, site.prefix, path)
            yield from _subnets(name, site, owner)
            yield from _links(spec, name, site)
    pods, clients = spec.kubernetes.pods, spec.access.vpn
    yield _request(spec, "kubernetes/pods", pods.cidr, pods.prefix, "kubernetes.pods.cidr")
    yield _request(
        spec, "kubernetes/services", spec.kubernetes.services, SERVICES_PREFIX, "kubernetes.services"
    )
    laptops = SUPERNET if _CGNAT.overlaps(spec.supernet) else LAPTOPS
    yield _request(
        spec, "access/clients", clients.clients, clients.prefix, "access.vpn.clients", within=laptops
    )
    length = clients.clients.prefixlen if clients.clients is not None else clients.prefix
    for server in vpn_sites(spec, primary_of(spec)):
        yield Request(
            clients_key(server), "access/clients", prefix=server_prefix(length), path="access.vpn.servers"
        )
    if "wireguard" in clients.kinds:
        yield from _devices(spec, laptops)
    for first, second, count in mesh_pairs(spec):
        for number in range(1, count + 1):
            path = dotted(("sites", first, "gateway", "addresses", number - 1))
            yield Request(tunnel_owner(link_name(first, second, number), 1), LINKS, prefix=30, path=path)


def _devices(spec: Spec, within: str) -> Iterator[Request]:
    written = spec.access.vpn.wireguard
    path = "access.vpn.wireguard.clients"
    yield _request(spec, WIREGUARD, written.clients, written.prefix, path, within=within)
    users = sorted(login for login, user in spec.access.users.items() if user.vpn)
    for owner in (WIREGUARD_SERVERS, *map(devices_key, users)):
        yield Request(owner, WIREGUARD, prefix=DEVICES_PREFIX, path="access.vpn.wireguard")


def _request(
    spec: Spec, owner: str, block: IPv4Network | None, prefix: int, path: str, within: str = SUPERNET
) -> Request:
    if block is None:
        return Request(owner, within, prefix=prefix, path=path)
    return Request(owner, SUPERNET if block.subnet_of(spec.supernet) else ANYWHERE, block=block, path=path)


def _subnets(name: str, site: AwsSite, owner: str) -> Iterator[Request]:
    for zone in zones_of(name, site):
        stated = site.explicit_subnets.get(zone)
        for tier in TIERS:
            block: IPv4Network | None = getattr(stated, tier, None)
            size: int | None = getattr(site.subnets, tier)
            key = f"{owner}/{subnet_name(tier, zone)}"
            if block is not None:
                path = dotted(("sites", name, "explicit_subnets", zone, tier))
                yield Request(key, owner, block=block, path=path)
            elif size is not None:
                yield Request(key, owner, prefix=size, path=dotted(("sites", name, "subnets", tier)))


def _links(spec: Spec, aws_site: str, aws: AwsSite) -> Iterator[Request]:
    for name, site in linked_sites(spec, aws):
        assert site.gateway is not None
        for number in range(1, len(site.gateway.addresses) + 1):
            for tunnel in (1, 2):
                yield Request(
                    tunnel_owner(link_name(name, aws_site, number), tunnel),
                    LINKS,
                    prefix=30,
                    path=dotted(("sites", name, "gateway", "addresses", number - 1)),
                )
