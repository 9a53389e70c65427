"""Addresses that were stated and can't be as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.spec import Spec
from infra.spec.sites import AwsSite, PhysicalSite


def _stated_sites(spec: Spec) -> Iterator[tuple[Path, IPv4Network]]:
    for name, site in spec.sites.items():
        if site.cidr is not None:
            yield ("sites", name, "cidr"), site.cidr


def _stated_subnets(site: AwsSite, name: str) -> Iterator[tuple[Path, IPv4Network]]:
    for zone, subnets in site.explicit_subnets.items():
        for tier in ("public", "private", "pods"):
            block: IPv4Network | None = getattr(subnets, tier)
            if block is not None:
                yield ("sites", name, "explicit_subnets", zone, tier), block


def _clashes(stated: list[tuple[Path, IPv4Network]]) -> Iterator[Finding]:
    """Overlaps among blocks, by one sweep in address order: O(n log n)."""
    widest: tuple[Path, IPv4Network] | None = None
    for path, block in sorted(stated, key=lambda item: (item[1].network_address, item[1].prefixlen, item[0])):
        if widest is not None and block.network_address <= widest[1].broadcast_address:
            yield Finding(path, f"{block} overlaps {widest[1]} of {dotted(widest[0])}")
        if widest is None or block.broadcast_address > widest[1].broadcast_address:
            widest = (path, block)


@check("NET001", Level.ERROR, "Two stated blocks of sites, pods, services or laptops overlap.")
def sites_overlap(spec: Spec) -> Iterator[Finding]:
    stated = list(_stated_sites(spec))
    others: list[tuple[Path, IPv4Network | None]] = [
        (("kubernetes", "pods", "cidr"), spec.kubernetes.pods.cidr),
        (("kubernetes", "services"), spec.kubernetes.services),
        (("access", "vpn", "clients"), spec.access.vpn.clients),
    ]
    stated += [(path, block) for path, block in others if block is not None]
    yield from _clashes(stated)


@check("NET002", Level.ERROR, "Two stated subnets of a VPC overlap.")
def subnets_overlap(spec: Spec) -> Iterator[Finding]:
    for name, site in spec.sites.items():
        if isinstance(site, AwsSite):
            yield from _clashes(list(_stated_subnets(site, name)))


@check("NET003", Level.ERROR, "A stated subnet lies outside its VPC.")
def subnet_outside(spec: Spec) -> Iterator[Finding]:
    for name, site in spec.sites.items():
        if isinstance(site, AwsSite) and site.cidr is not None:
            for path, block in _stated_subnets(site, name):
                if not block.subnet_of(site.cidr):
                    yield Finding(path, f"{block} lies outside the VPC's {site.cidr}")


@check("NET004", Level.ERROR, "A VPC or subnet is larger than /16 or smaller than /28, which AWS refuses.")
def aws_sizes(spec: Spec) -> Iterator[Finding]:
    for name, site in spec.sites.items():
        if not isinstance(site, AwsSite):
            continue
        stated = list(_stated_subnets(site, name))
        if site.cidr is not None:
            stated.append((("sites", name, "cidr"), site.cidr))
        for path, block in stated:
            if not 16 <= block.prefixlen <= 28:
                yield Finding(path, f"{block} is a /{block.prefixlen}; AWS takes /16 to /28")


@check("NET005", Level.ERROR, "A physical node's address lies outside its site's LAN, or is no host address.")
def node_address(spec: Spec) -> Iterator[Finding]:
    for name, site in spec.sites.items():
        if not isinstance(site, PhysicalSite):
            continue
        edges = {site.cidr.network_address, site.cidr.broadcast_address}
        for host, node in site.nodes.items():
            path = ("sites", name, "nodes", host, "address")
            if node.address not in site.cidr:
                yield Finding(path, f"{node.address} lies outside the LAN {site.cidr}")
            elif node.address in edges:
                yield Finding(path, f"{node.address} is the network's own or its broadcast address")


@check("NET006", Level.ERROR, "Two physical nodes have the same address.")
def node_addresses_twice(spec: Spec) -> Iterator[Finding]:
    seen: dict[object, Path] = {}
    for name, site in spec.sites.items():
        if isinstance(site, PhysicalSite):
            for host, node in site.nodes.items():
                path = ("sites", name, "nodes", host, "address")
                if node.address in seen:
                    yield Finding(path, f"{node.address} is already {dotted(seen[node.address])}")
                seen.setdefault(node.address, path)
