"""The links between nodes, each with its MTU; used by checks and ``resolve``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from infra.catalogue import packets
from infra.schema.cluster import Spec
from infra.schema.defaults import linked_sites, mesh_pairs, region_order
from infra.schema.sites import AwsSite, PhysicalSite


@dataclass(frozen=True, slots=True)
class Line:
    """A link between two nodes."""

    name: str
    """Name for people: ``the tunnels between rack-a and us-west-2``."""
    mtu: int
    """In bytes."""


def lines(spec: Spec) -> Iterator[Line]:
    """Every link that a packet between two nodes may use.

    A packet that uses several, such as a LAN and a tunnel, must fit each.
    """
    regions = region_order(spec)
    for name in regions:
        yield Line(f"{name}'s VPC", packets.VPC)
    for first, second in combinations(sorted(regions), 2):
        yield Line(f"the peering of {first} and {second}", packets.BETWEEN_REGIONS)
    racks = {name: site for name, site in sorted(spec.sites.items()) if isinstance(site, PhysicalSite)}
    for name, site in racks.items():
        yield Line(f"{name}'s LAN", site.mtu)
    for region in regions:
        place = spec.sites[region]
        assert isinstance(place, AwsSite)
        for name, site in linked_sites(spec, place):
            yield _tunnels(name, region, aws_tunnel(spec, site))
    for first, second, _ in mesh_pairs(spec):
        yield _tunnels(first, second, site_tunnel(spec, racks[first], racks[second]))


def _tunnels(first: str, second: str, mtu: int) -> Line:
    return Line(f"the tunnels between {first} and {second}", mtu)


def aws_tunnel(spec: Spec, site: PhysicalSite) -> int:
    """The MTU inside a tunnel between a site and AWS."""
    return packets.esp(min(_path_mtu(spec, site), packets.AWS_VPN), encapsulated=encapsulated(site))


def site_tunnel(spec: Spec, first: PhysicalSite, second: PhysicalSite) -> int:
    """The MTU inside a tunnel between two sites."""
    path = min(_path_mtu(spec, first), _path_mtu(spec, second))
    return packets.esp(path, encapsulated=encapsulated(first, second))


def encapsulated(*ends: PhysicalSite) -> bool:
    """Whether ESP between them is always encapsulated in UDP (RFC 3948), because one is behind NAT. AWS is
    not."""
    return any(site.gateway is not None and site.gateway.behind_nat for site in ends)


def _path_mtu(spec: Spec, site: PhysicalSite) -> int:
    """The MTU of the internet path to a site."""
    return (site.gateway and site.gateway.path_mtu) or spec.network.path_mtu


def narrowest(spec: Spec) -> Line:
    """The link with the smallest MTU, the first of several. For a spec without sites, Ethernet's default."""
    return min(lines(spec), key=lambda line: line.mtu, default=Line("Ethernet", 1500))


POD_OVERHEAD = {"vxlan": packets.VXLAN, "host-gw": 0, "wireguard": packets.WIREGUARD}
"""flannel's backends → bytes that each adds to a pod's packet."""


def most_for_pods(spec: Spec) -> int:
    """The largest MTU of pods that needs no fragmentation anywhere."""
    return narrowest(spec).mtu - POD_OVERHEAD[spec.kubernetes.pods.backend]
