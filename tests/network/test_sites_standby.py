"""A site with two gateways: who takes over when one is unplugged, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from network.aws import AwsRegion
from network.lab import Lab
from network.machine import Machine
from network.metrics import collected
from network.node import wait_for
from network.world import Site, World, research

GAP = 10
"""Seconds: the longest that a machine of the LAN, or of the region, may wait for the other."""

VIRTUAL = "10.200.0.5"

_GATEWAY = "    gateway: {addresses: [198.51.100.10], asn: 65010}\n"
_STANDBY = f"""\
    gateway:
      addresses: [198.51.100.10, 198.51.100.11]
      asn: 65010
      standby: gateway-a2
      virtual_address: {VIRTUAL}
"""
_NODES = """\
    nodes:
      gateway-a2: {address: 10.200.0.4, cpus: 8, memory: 16 GiB, roles: [site-gateway]}
      gateway-a:
"""


@pytest.fixture(scope="module")
def world(machine: Machine) -> Iterator[World]:
    """rack-a with two gateways, rack-b with one, and one region."""

    def change(text: str) -> str:
        for plain, other in (
            (_GATEWAY, _STANDBY),
            ("    nodes:\n      gateway-a:\n", _NODES),
            *(
                (f"  {name}:\n    kind: aws\n", f"  {name}:\n    kind: aws\n    vpn: []\n")
                for name in ("us-east-1", "eu-west-1")
            ),
        ):
            assert plain in text
            text = text.replace(plain, other)
        return text

    lab = Lab(machine)
    made = World.made(lab, research(change), regions=["us-west-2"], prefix="two-")
    wait_for(
        lambda: leads(made.sites["rack-a"]), "the preferred gateway in charge", 90, list(lab.nodes.values())
    )
    yield made
    lab.close()


@pytest.fixture
def standby(world: World) -> Site:
    return world.sites["rack-a.standby"]


@pytest.fixture
def region(world: World) -> AwsRegion:
    return world.regions["us-west-2"]


def leads(site: Site) -> bool:
    """Whether a gateway has the virtual address, and tells peers so."""
    return f" {VIRTUAL}/32 " in site.node.check("ip", "-4", "-o", "address", "show") and site.node.exists(
        "/run/site-gateway/leads"
    )


def wait_back(world: World) -> None:
    """Until all is as it was."""
    preferred, standby = world.sites["rack-a"], world.sites["rack-a.standby"]
    wait_for(
        lambda: leads(preferred) and not leads(standby),
        "the preferred gateway in charge again",
        90,
        [preferred.node, standby.node],
    )
    world.wait_healthy(60)


def test_one_of_two_is_in_charge(world: World, site: Site, standby: Site, region: AwsRegion) -> None:
    assert (leads(site), leads(standby)) == (True, False)
    assert {tunnel.name for tunnel in site.gateway.tunnels} == {"us-west-2-1", "us-west-2-2", "rack-b-1"}
    assert site.charon.established() == {each.name for each in site.gateway.tunnels}
    assert standby.charon.established() == {each.name for each in standby.gateway.tunnels}
    assert [
        collected(each.node, "tunnel", "/usr/local/lib/causeway/gateway-metrics")["gateway_leads", ""]
        for each in (site, standby)
    ] == [1, 0]
    assert site.host.reaches(region.worker_address)
    assert site.host.reaches(world.sites["rack-b"].host_address)


@pytest.mark.parametrize(
    ("far", "cables"),
    [
        ("us-west-2", {"lan", "internet"}),
        ("rack-b", {"lan", "internet"}),
        ("us-west-2", {"internet"}),
        ("us-west-2", {"lan"}),
    ],
    ids=["region", "site", "region-internet-only", "region-lan-only"],
)
def test_unplugged_gateway_is_replaced(
    world: World, site: Site, standby: Site, region: AwsRegion, far: str, cables: set[str]
) -> None:
    """Nobody is told: a gateway without cables says nothing, one without a LAN has its BGP sessions
    still. The other way too, once it is plugged in again."""
    place = (
        (region.worker, region.worker_address)
        if far == "us-west-2"
        else (world.sites[far].host, world.sites[far].host_address)
    )
    there = site.host.pinging(place[1], 0.2)
    back = place[0].pinging(site.host_address, 0.2)
    with ExitStack() as out:
        for name, cable in (("internet", world.lab.internet), ("lan", site.lan)):
            if name in cables:
                out.enter_context(cable.unplugged(site.node))
        wait_for(lambda: leads(standby), "the standby in charge", 30, [standby.node])
        wait_for(lambda: place[0].reaches(site.host_address), "the site", 30, [standby.node])
        gone = there.stop(), back.stop()
    assert all(each.longest_gap < GAP for each in gone), gone
    there = site.host.pinging(place[1], 0.2)
    back = place[0].pinging(site.host_address, 0.2)
    wait_back(world)
    returned = there.stop(), back.stop()
    assert all(each.longest_gap < GAP for each in returned), returned
