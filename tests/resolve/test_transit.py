"""Regions and sites find each other over transit gateways, both ways, by the routes that are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network

import pytest
from strategies.reading import resolved
from strategies.specs import Plain

from infra.catalogue import regions
from infra.model import Cluster

PRIMARY = "us-west-2"
NAMES = [PRIMARY, *(name for name in regions.names() if name != PRIMARY and not name.startswith("cn-"))]
INSIDE, OUTSIDE = "10.200.0.0/22", "192.168.64.0/22"


def rack(lan: str, number: int, count: int = 1, **gateway: str) -> Plain:
    address = str(IPv4Network(lan)[2])
    node = {"address": address, "cpus": 8, "memory": "16 GiB", "roles": ["site-gateway"]}
    public = [f"198.51.100.{10 * number + each}" for each in range(count)]
    return {
        "kind": "physical",
        "cidr": lan,
        "gateway": {"addresses": public, **gateway},
        "nodes": {f"gate-{number}": node},
    }


def cluster(count: int, vpn: dict[str, Sequence[str]], **sites: Plain) -> Cluster:
    """So many regions; `vpn`: the sites that some of them name."""
    aws: dict[str, Plain] = {
        name: {
            "kind": "aws",
            "prefix": 20,
            "subnets": {"public": 26, "private": 24},
            "primary": name == PRIMARY,
        }
        for name in NAMES[:count]
    }
    for name, named in vpn.items():
        aws[name]["vpn"] = list(named)
    network = {"interconnect": "transit-gateway"}
    return resolved(supernet="10.0.0.0/8", network=network, sites={**aws, **sites})


class Routes:
    """What routers of AWS have of a cluster, as the modules make it."""

    def __init__(self, found: Cluster, dead: Sequence[str] = ()) -> None:
        """`dead`: links that are down."""
        self.network = found.network
        self.vpcs = {region.name: region.vpc for region in found.regions}
        self.alive = [link for link in found.network.links if link.name not in dead]

    def behind(self, here: str, peer: str) -> list[IPv4Network]:
        """What a peered gateway leads to."""
        wide = self.network.supernet if peer == self.network.hub else self.vpcs[peer]
        return [wide, *self.network.transit[peer].behind.get(here, ())]

    def peers(self, here: str) -> Iterator[str]:
        for peering in self.network.peerings:
            if here in (peering.requester, peering.accepter):
                yield peering.accepter if here == peering.requester else peering.requester

    def vpc_sends(self, region: str, block: IPv4Network) -> bool:
        """Whether a VPC sends a block to its transit gateway."""
        made = [*self.network.transit[region].lans]
        made += [each for peer in self.peers(region) for each in self.behind(region, peer)[:1]]
        return any(block.subnet_of(each) for each in made)

    def way(self, start: str, lan: IPv4Network) -> list[str]:
        """The regions whose gateways a packet to a LAN crosses; the last has a connection to its site. Static
        routes win over what is learned (Transit Gateways Guide, "Route evaluation order")."""
        crossed = [start]
        while True:
            here = crossed[-1]
            static = [(each, peer) for peer in self.peers(here) for each in self.behind(here, peer)]
            learned = [
                (block, "") for link in self.alive if link.aws_site == here for block in link.site_blocks
            ]
            fitting = [(block.prefixlen, hop) for block, hop in (*learned, *static) if lan.subnet_of(block)]
            if not fitting:
                return []
            longest = max(length for length, _ in fitting)
            hops = [hop for length, hop in fitting if length == longest]
            peers = [hop for hop in hops if hop]
            if not peers:
                return crossed
            assert peers[0] not in crossed, f"{crossed} and again {peers[0]}"
            crossed.append(peers[0])


CLUSTERS = {
    "hub": cluster(12, {}, near=rack(INSIDE, 1), far=rack(OUTSIDE, 2)),
    "hub, and more": cluster(
        12, {NAMES[3]: ["near", "far"]}, near=rack(INSIDE, 1, 2), far=rack(OUTSIDE, 2, routing="static")
    ),
    "not at the hub": cluster(
        12, {PRIMARY: ["near"], NAMES[5]: ["far"]}, near=rack(INSIDE, 1), far=rack(OUTSIDE, 2)
    ),
    "not at the hub, inside": cluster(12, {PRIMARY: [], NAMES[5]: ["near"]}, near=rack(INSIDE, 1)),
    "pairs": cluster(4, {}, near=rack(INSIDE, 1), far=rack(OUTSIDE, 2)),
    "pairs, and more": cluster(4, {NAMES[2]: ["near", "far"]}, near=rack(INSIDE, 1), far=rack(OUTSIDE, 2)),
    "one": cluster(1, {}, near=rack(INSIDE, 1)),
}


@pytest.mark.parametrize("found", CLUSTERS.values(), ids=CLUSTERS)
def test_each_region_and_each_site_find_each_other(found: Cluster) -> None:
    routes = Routes(found)
    for site in found.sites:
        (gateway,) = (each for each in found.gateways if each.site == site.name)
        for region in found.regions:
            assert routes.vpc_sends(region.name, site.lan)
            last = routes.way(region.name, site.lan)[-1]
            taken = [tunnel for tunnel in gateway.tunnels if region.vpc in tunnel.accepts]
            if gateway.routing == "static":
                best = min(tunnel.metric for tunnel in taken)
                used = {tunnel.peer for tunnel in taken if tunnel.metric == best}
            else:
                best = max(tunnel.preference for tunnel in taken)
                used = {tunnel.peer for tunnel in taken if tunnel.preference == best}
            # The same connection both ways.
            assert used == {last}


def test_a_site_has_connections_to_the_hub_and_to_regions_that_name_it() -> None:
    assert [link.name for link in CLUSTERS["hub"].network.links] == [f"far-{PRIMARY}", f"near-{PRIMARY}"]
    assert [(link.site, link.aws_site) for link in CLUSTERS["hub, and more"].network.links] == [
        ("far", NAMES[3]), ("far", PRIMARY), ("near", NAMES[3]), ("near", NAMES[3]), ("near", PRIMARY),
        ("near", PRIMARY),
    ]  # fmt: skip


def test_the_route_to_the_hub_covers_what_is_in_the_supernet() -> None:
    transit = CLUSTERS["hub"].network.transit
    assert transit[PRIMARY].lans == (IPv4Network(INSIDE), IPv4Network(OUTSIDE))
    assert {transit[name].lans for name in NAMES[1:12]} == {(IPv4Network(OUTSIDE),)}
    assert set(transit[PRIMARY].behind.values()) == {(IPv4Network(OUTSIDE),)}


def test_all_tunnels_of_bgp_are_alike_and_static_ones_are_in_order() -> None:
    near, far = (
        next(gateway for gateway in CLUSTERS["hub, and more"].gateways if gateway.site == site)
        for site in ("near", "far")
    )
    hub = [tunnel for tunnel in near.tunnels if tunnel.peer == PRIMARY]
    assert len(hub) == 4
    assert len({(tunnel.preference, tunnel.metric) for tunnel in hub}) == 1
    static = [tunnel.metric for tunnel in far.tunnels if tunnel.kind == "aws"]
    assert len(static) == len(set(static)) == 4


def test_where_a_region_loses_its_own_connection_the_hub_leads_around_it() -> None:
    """Inside of the supernet. For another LAN there is no way back, so the hub's connection is not used."""
    found = CLUSTERS["hub, and more"]
    own = next(region for region in found.regions if region.name == NAMES[3])
    dead = [link.name for link in found.network.links if link.aws_site == own.name]
    routes = Routes(found, dead)
    assert routes.way(own.name, IPv4Network(INSIDE)) == [own.name, PRIMARY]
    assert routes.way(own.name, IPv4Network(OUTSIDE)) == []
    reaching = {
        link.site for link in found.network.links if link.aws_site == PRIMARY and own.vpc in link.aws_blocks
    }
    assert reaching == {"near"}


def test_peered_vpcs_pass_nothing_on() -> None:
    aws: Plain = {"us-west-2": {"kind": "aws", "primary": True}, "us-east-1": {"kind": "aws"}}
    found = resolved(sites={**aws, "near": rack(INSIDE, 1)})
    assert found.network.transit == {}
    assert {link.aws_site: link.aws_blocks for link in found.network.links} == {
        region.name: (region.vpc,) for region in found.regions
    }
