"""A site that is joined to a transit gateway: over two tunnels at once, to its region and beyond."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from network.aws import AwsRegion
from network.lab import Lab
from network.machine import Machine
from network.world import Site, World, research


@pytest.fixture(scope="module")
def world(machine: Machine) -> Iterator[World]:
    """One rack, the hub that it is connected to, and a region behind that."""

    def change(text: str) -> str:
        assert "\nnetwork:" not in text
        return f"{text}\nnetwork: {{interconnect: transit-gateway}}\n"

    lab = Lab(machine)
    regions = ["us-west-2", "us-east-1"]
    yield World.made(lab, research(change), sites=["rack-a"], regions=regions, prefix="t-")
    lab.close()


@pytest.fixture
def hub(world: World) -> AwsRegion:
    return world.regions["us-west-2"]


@pytest.fixture
def beyond(world: World) -> AwsRegion:
    return world.regions["us-east-1"]


def test_the_hub_leads_on_to_other_regions(site: Site, hub: AwsRegion, beyond: AwsRegion) -> None:
    assert not beyond.ends
    for region in (hub, beyond):
        assert site.host.reaches(region.worker_address)
        assert region.worker.reaches(site.host_address)
    assert site.host.fits(beyond.worker_address, 1446)
    assert site.dropped("from-us-west-2-1") == site.dropped("from-us-west-2-2") == 0


def test_both_tunnels_carry_both_ways(site: Site, beyond: AwsRegion) -> None:
    names = [site.interface("us-west-2", order) for order in (1, 2)]
    before = site.packets()
    for _ in range(8):  # connections, each of which keeps to a tunnel
        site.host.sends(beyond.worker, beyond.worker_address, 100_000)
        beyond.worker.sends(site.host, site.host_address, 100_000)
    after = site.packets()
    for name in names:
        for way in ("rx", "tx"):
            assert after[name][way] - before[name][way] > 50, (name, way, before, after)


@pytest.mark.parametrize("number", [1, 2])
def test_draining_either_tunnel_loses_nothing(
    world: World, site: Site, hub: AwsRegion, beyond: AwsRegion, number: int
) -> None:
    world.wait_settled()
    there = site.host.pinging(beyond.worker_address, 0.1)
    back = hub.worker.pinging(site.host_address, 0.1)
    site.tool("drain", f"us-west-2-{number}")
    world.wait_spread(1, without=hub.end(site.name, number).name)
    site.tool("restore", f"us-west-2-{number}")
    world.wait_spread()
    assert (there.stop().lost, back.stop().lost) == (0, 0)


def test_what_goes_over_a_tunnel_that_dies_takes_the_other_until_it_is_back(
    world: World, site: Site, hub: AwsRegion, beyond: AwsRegion
) -> None:
    end = hub.end(site.name, 1)
    with world.lab.internet.cut(str(end.outside)):
        world.wait_spread(45, without=end.name)
        for _ in range(4):  # over none that is dead
            site.host.sends(beyond.worker, beyond.worker_address, 100_000)
            beyond.worker.sends(site.host, site.host_address, 100_000)
    # Where one end still knows what the other has given up, the timer of `site-tunnel revive` begins it anew.
    world.wait_joined()
    world.wait_spread(60)
    for _ in range(4):
        site.host.sends(beyond.worker, beyond.worker_address, 100_000)
        beyond.worker.sends(site.host, site.host_address, 100_000)
