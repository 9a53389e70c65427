"""Which transit gateway routes to which physical site, and the static routes.

A transit gateway learns the LANs of the sites that are connected to it. A peering attachment does not
propagate routes (Transit Gateways Guide, "Transit gateway peering attachments"), so the other regions have
static routes to the LAN through the site's first region.
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
    """Physical site → the AWS sites that it has VPN connections to, in overflow order: other sites reach it
    through the first one."""
    found: dict[str, list[str]] = {}
    for name in region_order(spec):
        aws = spec.sites[name]
        assert isinstance(aws, AwsSite)
        for site, _ in linked_sites(spec, aws):
            found.setdefault(site, []).append(name)
    return found


def reached(
    spec: Spec, site: str, joined: Sequence[str], vpcs: Mapping[str, IPv4Network]
) -> dict[str, tuple[IPv4Network, ...]]:
    """AWS site that a physical site is connected to → the VPCs that it reaches over that connection.

    VPC peering is not transitive. A transit gateway is, over the first connection: to all other VPCs, and,
    as a backup path, to AWS sites with a connection of their own if they have a route back.
    """
    own: dict[str, tuple[IPv4Network, ...]] = {name: (vpcs[name],) for name in joined}
    if interconnect(spec) == "peering" or not joined:
        return own
    around = _covered(spec, _lan(spec, site))
    beyond = [vpc for name, vpc in vpcs.items() if name not in joined[1:] or around]
    return {**own, joined[0]: tuple(sorted(beyond))}


def resolve_transit(spec: Spec, regions: Sequence[Region]) -> dict[str, Transit]:
    """AWS site → its transit gateway's routes; empty if VPCs are peered."""
    if interconnect(spec) == "peering":
        return {}
    middle = hub(spec)
    lans: dict[str, list[IPv4Network]] = defaultdict(list)
    behind: dict[str, dict[str, list[IPv4Network]]] = defaultdict(lambda: defaultdict(list))
    for site, joined in sorted(connected(spec).items()):
        lan = _lan(spec, site)
        for aws_site in (each.name for each in regions):
            if aws_site != middle and _covered(spec, lan):
                continue
            lans[aws_site].append(lan)
            if aws_site not in joined:
                via = joined[0] if middle in (None, aws_site) else middle
                behind[via][aws_site].append(lan)
    return {
        region.name: Transit(
            tuple(sorted(lans[region.name])),
            {peer: tuple(sorted(found)) for peer, found in sorted(behind[region.name].items())},
        )
        for region in regions
    }


def _covered(spec: Spec, lan: IPv4Network) -> bool:
    """Whether all other regions reach a LAN by their route for the supernet to the hub."""
    return hub(spec) is not None and lan.subnet_of(spec.supernet)


def _lan(spec: Spec, site: str) -> IPv4Network:
    found = spec.sites[site]
    assert isinstance(found, PhysicalSite)
    return found.cidr
