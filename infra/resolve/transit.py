"""Which transit gateway leads to which physical site, and by which static routes.

A transit gateway knows the LANs of the sites that are connected to it. A peering passes nothing on (Transit
Gateways Guide, "Transit gateway peering attachments"), so the other regions have static routes to the LAN:
towards the site's first region.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network

from infra.model.places import Region, Transit
from infra.schema import Spec
from infra.schema.defaults import hub, interconnect, linked_sites, region_order
from infra.schema.sites import AwsSite, PhysicalSite


def connected(spec: Spec) -> dict[str, list[str]]:
    """Site → the regions that it has VPN connections to, in overflow order: the first is the one that others
    reach it through."""
    found: dict[str, list[str]] = {}
    for name in region_order(spec):
        region = spec.sites[name]
        assert isinstance(region, AwsSite)
        for site, _ in linked_sites(spec, region):
            found.setdefault(site, []).append(name)
    return found


def reached(
    spec: Spec, site: str, regions: Sequence[str], vpcs: Mapping[str, IPv4Network]
) -> dict[str, tuple[IPv4Network, ...]]:
    """Region that a site is connected to → the VPCs that it reaches over that connection.

    Peered VPCs pass nothing on. A transit gateway does, in the site's first region: also to regions with a
    connection of their own, as a way around it, where these would find the way back.
    """
    own: dict[str, tuple[IPv4Network, ...]] = {name: (vpcs[name],) for name in regions}
    if interconnect(spec) == "peering" or not regions:
        return own
    around = _covered(spec, _lan(spec, site))
    beyond = [vpc for name, vpc in vpcs.items() if name not in regions[1:] or around]
    return {**own, regions[0]: tuple(sorted(beyond))}


def resolve_transit(spec: Spec, regions: Sequence[Region]) -> dict[str, Transit]:
    """By region; empty where VPCs are peered."""
    if interconnect(spec) == "peering":
        return {}
    middle = hub(spec)
    lans: dict[str, list[IPv4Network]] = defaultdict(list)
    behind: dict[str, dict[str, list[IPv4Network]]] = defaultdict(lambda: defaultdict(list))
    for site, joined in sorted(connected(spec).items()):
        lan = _lan(spec, site)
        for region in (each.name for each in regions):
            if region != middle and _covered(spec, lan):
                continue
            lans[region].append(lan)
            if region not in joined:
                via = joined[0] if middle in (None, region) else middle
                behind[via][region].append(lan)
    return {
        region.name: Transit(
            tuple(sorted(lans[region.name])),
            {peer: tuple(sorted(found)) for peer, found in sorted(behind[region.name].items())},
        )
        for region in regions
    }


def _covered(spec: Spec, lan: IPv4Network) -> bool:
    """Whether the route to the hub, for the supernet, leads to a LAN from all other regions."""
    return hub(spec) is not None and lan.subnet_of(spec.supernet)


def _lan(spec: Spec, site: str) -> IPv4Network:
    found = spec.sites[site]
    assert isinstance(found, PhysicalSite)
    return found.cidr
